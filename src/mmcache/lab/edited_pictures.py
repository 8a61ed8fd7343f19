"""What becomes of pictures on their way: edits after which a picture is the same, and changes after which it is not."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Edited = Iterator[tuple[str, Image.Image]]
Transpose = Image.Transpose


def saved(picture: Image.Image, kind: str, **options: object) -> Image.Image:
    """`picture` written as `kind` and read again."""
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return Image.open(file).convert("RGB")


def scaled(picture: Image.Image, factor: float, how: Image.Resampling = Image.Resampling.LANCZOS) -> Image.Image:
    """`picture` at `factor` times its size."""
    return picture.resize((max(1, round(picture.width * factor)), max(1, round(picture.height * factor))), how)


def reencoded(picture: Image.Image) -> Edited:
    """The same picture, framed alike."""
    for quality in (95, 75, 50, 30):
        yield f"jpeg-{quality}", saved(picture, "JPEG", quality=quality)
    for quality in (90, 50):
        yield f"webp-{quality}", saved(picture, "WEBP", quality=quality)
    for factor in (0.5, 0.75, 2.0):
        yield f"scale-{factor:g}", scaled(picture, factor)
    yield "half-jpeg-75", saved(scaled(picture, 0.5, Image.Resampling.BILINEAR), "JPEG", quality=75)


def cropped(picture: Image.Image, random: np.random.Generator) -> Edited:
    """The same picture with its rim cut off: one side by 2, 5 or 10 %, or all of them by 1, 2 or 5 %."""
    width, height = picture.size
    for percent in (2, 5, 10):
        x, y = round(width * percent / 100), round(height * percent / 100)
        boxes = [(x, 0, width, height), (0, y, width, height), (0, 0, width - x, height), (0, 0, width, height - y)]
        yield f"side-{percent}", picture.crop(boxes[int(random.integers(4))])
    for percent in (1, 2, 5):
        x, y = round(width * percent / 100), round(height * percent / 100)
        crop = picture.crop((x, y, width - x, height - y))
        yield f"round-{percent}", crop
    yield "round-5-jpeg-75", saved(crop.resize(picture.size, Image.Resampling.BILINEAR), "JPEG", quality=75)


def changed(picture: Image.Image, random: np.random.Generator) -> Edited:
    """Other pictures made of it. Those that it is too even or too symmetric to show are left out."""
    turned = {
        "mirrored": picture.transpose(Transpose.FLIP_LEFT_RIGHT),
        "upside-down": picture.transpose(Transpose.FLIP_TOP_BOTTOM),
        "turned-180": picture.transpose(Transpose.ROTATE_180),
        "red-for-blue": Image.fromarray(np.ascontiguousarray(np.asarray(picture)[:, :, ::-1])),
    }
    for name, other in turned.items():
        if not _shifted(picture, other):
            yield name, other
    x, y = (int(side * random.uniform(0.1, 0.8)) for side in picture.size)
    ink = tuple(255 if level < 128 else 0 for level in np.asarray(picture)[y, x].tolist())
    for share in (16, 10):
        side = max(3, picture.height // share)
        spot = picture.copy()
        ImageDraw.Draw(spot).rectangle((x, y, x + side, y + side), fill=ink)
        yield f"spot-1/{share}", spot


def digits(picture: Image.Image, share: int, random: np.random.Generator) -> tuple[Image.Image, Image.Image]:
    """Two copies with "3" and "8" written at one place, 1 / `share` of the height tall."""
    x, y = (int(side * random.uniform(0.1, 0.8)) for side in picture.size)
    ink = tuple(255 if level < 128 else 0 for level in np.asarray(picture)[y, x].tolist())
    font, copies = ImageFont.load_default(max(6, picture.height / share)), (picture.copy(), picture.copy())
    for copy, digit in zip(copies, "38", strict=True):
        ImageDraw.Draw(copy).text((x, y), digit, fill=ink, font=font)
    return copies


def _shifted(one: Image.Image, other: Image.Image) -> bool:
    """Whether the two are equal but for a shift of a tenth of the sides or less: a mirrored circle only moved."""
    a, b = (np.asarray(picture.convert("RGB"), np.int16) for picture in (one, other))
    step = max(1, min(one.size) // 64)
    a, b = a[::step, ::step], b[::step, ::step]
    reach = max(a.shape[:2]) // 10
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            mine = a[max(dy, 0) : len(a) + min(dy, 0), max(dx, 0) : a.shape[1] + min(dx, 0)]
            yours = b[max(-dy, 0) : len(b) + min(-dy, 0), max(-dx, 0) : b.shape[1] + min(-dx, 0)]
            if (np.abs(mine - yours).max(axis=2) > 128).mean() < 0.006:
                return True
    return False


def redrawn(drawing: Image.Image) -> dict[str, Image.Image]:
    """A drawing of easy-VQA drawn anew: circle, rectangle and triangle of its colour, in the box of its shape."""
    pixels = np.asarray(drawing.convert("RGB"), np.int16)
    paper = pixels[0, 0]
    inked = np.abs(pixels - paper).sum(axis=2) > 60
    if not inked.any():
        return {}
    rows, columns = np.nonzero(inked.any(axis=1))[0], np.nonzero(inked.any(axis=0))[0]
    left, top, right, bottom = int(columns[0]), int(rows[0]), int(columns[-1]), int(rows[-1])
    ink = tuple(int(level) for level in np.median(pixels[inked], axis=0))
    found = {}
    for shape in ("circle", "rectangle", "triangle"):
        sheet = Image.new("RGB", drawing.size, tuple(int(level) for level in paper))
        pen = ImageDraw.Draw(sheet)
        if shape == "circle":
            pen.ellipse((left, top, right, bottom), fill=ink)
        elif shape == "rectangle":
            pen.rectangle((left, top, right, bottom), fill=ink)
        else:
            pen.polygon(((left, bottom), (right, bottom), ((left + right) // 2, top)), fill=ink)
        found[shape] = sheet
    return found
