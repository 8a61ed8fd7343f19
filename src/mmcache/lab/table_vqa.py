"""Table `vqa`: what the repository's own small vision-language model can do, and whether its attention means anything.

Everything here is on pictures that it was not trained on. See docs/concepts/vlm.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mmcache.lab.data.concepts import Concept
from mmcache.lab.data.picture_questions import Asked, asked, facts
from mmcache.lab.data.pictures import shapes
from mmcache.lab.measure import interleave
from mmcache.lab.models import ImageEncoder
from mmcache.lab.models.vlm import VisionLanguage, tokens
from mmcache.lab.models.vlm.examples import KIND, plain
from mmcache.lab.picture_scores import (
    Answer,
    Marked,
    blind,
    box_of,
    mark,
    overlap,
    painted_over,
    point,
    shape_mask,
)  # fmt: skip
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.model.errors import AssetError

LEAST_RIGHT = 95.0
"""Per cent of easy-VQA's test questions."""
LARGEST_FILE = 10.0
"""MB of committed weights."""
KINDS = ("colour", "shape", "is there", "is there not")
WHERE = "what shape is in the image?"
POINTED = 300
"""Pictures of the pointing game."""
PAINTED = 40
DRAWINGS = {
    "new drawing": "a taught emoji in a style never seen",
    "new concept": "an emoji never seen, in a taught style",
    "both": "an emoji never seen, in a style never seen",
}


class VQATable(Table):
    """Held-out answers beside what guessing gives, names of emoji, where the model looks, how long it takes."""

    name: ClassVar[str] = "vqa"
    title: ClassVar[str] = "The repository's own small vision-language model: held-out answers, and where it looks"
    remark: ClassVar[str] = (
        "A toy that really runs, not a general model: frozen DINOv2 tokens and a two-layer decoder, taught 1 200 "
        "pictures of drawn shapes and 200 emoji. `question-only` is what each question's commonest answer gives; "
        "`shuffled` asks about one picture and shows another. Names of emoji that it never saw it cannot know: it "
        "says what they look like, and those rows are low; the kind (Unicode's subgroup) carries over in part. The "
        "pointing game has one shape on an even ground, which is as easy as it gets: the rows show that the attention "
        "is about the picture, not that it would find its way in a photograph. The cut's defaults were chosen on "
        "training pictures; a region often covers a part of the shape, and what is left of it after painting over the "
        "region is often enough to answer. Early versions were tried on 180 of the 1 000 test pictures while the "
        "model was designed; this one was kept for its training loss. Spreads of shares are of pictures drawn anew "
        "(bootstrap): there is one set of weights, from one training seed."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """`seeds` draw the shuffled controls. Raises `AssetError` where weights or data are missing."""
        model = VisionLanguage()
        model.load()
        pictures = 40 if quick else 1000
        eyes = _test_tokens(pictures, progress)
        rows = [*_answers(model, eyes, pictures, seeds, progress), *_looks(model, eyes, quick, progress)]
        rows += _emoji(model, seeds, progress) if not quick else []
        rows += _costs(model, eyes[0], quick)
        questions = sum(one.picture < pictures for one in asked("test"))
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                "the committed weights, run by numpy on DINOv2 ViT-S/14 tokens of real files",
                f"easy-VQA's own test split: {questions} questions about {pictures} pictures, none of them taught",
                "where the shape is: read from the picture's pixels; the model was never told",
                "regions and spans: cut by the product's `fused.triples` at its default threshold",
                *(() if quick else ("emoji of Twemoji and Noto, split by concept and by style",)),
            ),
            ("the pictures are drawn shapes and emoji, made by their authors' programs: no photographs",),
            tuple(rows),
        )


Eyes = npt.NDArray[np.float32] | npt.NDArray[np.float16]


def _test_tokens(pictures: int, progress: Progress) -> Eyes:
    """The test pictures' tokens, [n, 257, 384]."""
    if pictures == len(shapes("test")):
        return tokens.of_shapes_test(progress)
    progress("tokens of test pictures", 0, pictures)
    return np.stack(ImageEncoder().encode_batch([tokens.opened(path) for path in shapes("test")[:pictures]]))


def _answers(model: VisionLanguage, eyes: Eyes, pictures: int, seeds: Sequence[int], progress: Progress) -> list[Row]:
    questions = [one for one in asked("test") if one.picture < pictures]
    done = 0

    def answer(picture: int, about: Sequence[str | None]) -> list[str]:
        nonlocal done
        done += 1
        progress("answers", done % pictures, pictures)
        return model.answers(eyes[picture].astype(np.float32), about)

    found = mark(questions, answer)
    rows = [_row("answers/all", "test questions answered right", found, target=LEAST_RIGHT)]
    rows += [_row(f"answers/{kind}", f"of the type `{kind}`", found.of(kind)) for kind in KINDS]
    unseen = mark(questions, blind(asked("train")))
    rows.append(_row("question-only/all", "right without the picture: each question's commonest answer", unseen))
    rows += [_row(f"question-only/{kind}", f"of the type `{kind}`", unseen.of(kind)) for kind in KINDS]
    shuffled = [_shuffled(questions, answer, pictures, seed) for seed in seeds]
    rows.append(
        Row.of("shuffled/all", "right with another picture shown (spread: seeds)", "%", "lower",
               [100 * float(one.right.mean()) for one in shuffled])
    )  # fmt: skip
    known = {picture: of for picture, of in facts("test").items() if picture < pictures}
    right = [
        float(said == f"a {colour} {shape}")
        for picture, (colour, shape) in known.items()
        for said in answer(picture, [None])
    ]
    rows.append(Row.of("describe/shapes", "described in the right words, e.g. `a red circle`", "%", "higher",
                       100 * float(np.mean(right))))  # fmt: skip
    return rows


def _shuffled(questions: Sequence[Asked], answer: Answer, pictures: int, seed: int) -> Marked:
    """A tenth of the pictures' questions, each asked of another picture."""
    order = np.random.default_rng(seed).permutation(pictures)
    shown = {int(one): int(other) for one, other in zip(order, np.roll(order, 1), strict=True)}
    some = {int(one) for one in order[: max(1, pictures // 10)]}
    return mark([one for one in questions if one.picture in some], answer, shown)


def _row(id: str, metric: str, marked: Marked, target: float | None = None) -> Row:
    low, high = np.percentile(marked.by_picture(), [10, 90])
    share = 100 * float(marked.right.mean())
    return Row(id, metric, "%", "higher", share, (float(low), float(high)), target)


def _looks(model: VisionLanguage, eyes: Eyes, quick: bool, progress: Progress) -> list[Row]:
    pictures = range(min(len(eyes), 40 if quick else POINTED))
    masks = {picture: shape_mask(shapes("test")[picture]) for picture in pictures}

    def look(picture: int) -> tuple[npt.NDArray[np.float32], Sequence[str], int]:
        progress("where it looks", picture, len(pictures))
        read = model.read(eyes[picture].astype(np.float32), WHERE)
        return read.attention, read.words, read.asked

    found = point(pictures, look, masks)

    def mean(id: str, metric: str, values: Sequence[float], better: str = "higher") -> Row:
        draws = np.random.default_rng(0).integers(0, len(values), (500, len(values)))
        low, high = np.percentile(100 * np.asarray(values)[draws].mean(axis=1), [10, 90])
        return Row(id, metric, "%", "higher" if better == "higher" else "lower", 100 * float(np.mean(values)),
                   (float(low), float(high)))  # fmt: skip

    rows = [
        mean("pointing/hit", "the answer's strongest patch lies on the shape", [one.hit for one in found]),
        mean("pointing/chance", "of all patches, those that do", [one.chance for one in found]),
        mean("pointing/inside", "of the answer's attention, what falls on the shape", [one.inside for one in found]),
        mean("triples/overlap", "best region against the shape's box: intersection over union",
             [one.overlap for one in found]),
        mean("triples/overlap-half", "regions with an overlap of at least a half",
             [float(one.overlap >= 0.5) for one in found]),
        mean("triples/another", "overlap with another picture's shape (control)", [one.elsewhere for one in found],
             "lower"),
    ]  # fmt: skip
    some = pictures[: 8 if quick else PAINTED]
    questions = [one for one in asked("test") if one.picture in some and one.answer not in ("yes", "no")]
    for name, words, box in (
        ("region", "the best region", {one: found[one].box for one in some}),
        ("elsewhere", "as much of the ground", {one: _beside(found[one].box, box_of(masks[one])) for one in some}),
    ):
        progress("pictures painted over", 0, 1)
        painted = ImageEncoder().encode_batch([painted_over(shapes("test")[one], box[one]) for one in some])
        marked = mark(questions, partial(_answer_from, model, painted))
        rows.append(_row(f"painted/{name}", f"colours and shapes right after {words} is painted over", marked))
    return rows


def _answer_from(
    model: VisionLanguage, eyes: Sequence[npt.NDArray[np.float32]], picture: int, about: Sequence[str | None]
) -> list[str]:
    return model.answers(eyes[picture], about)


def _beside(box: tuple[int, int, int, int], shape: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """A box of the size of `box` in that corner of the picture that lies farthest from the shape."""
    wide, high, side = box[2] - box[0], box[3] - box[1], 64
    left = 0 if shape[0] + shape[2] > side else side - wide
    upper = 0 if shape[1] + shape[3] > side else side - high
    return left, upper, left + wide, upper + high


def _emoji(model: VisionLanguage, seeds: Sequence[int], progress: Progress) -> list[Row]:
    try:
        sets: Mapping[str, tuple[Sequence[Concept], tokens.Tokens]] = tokens.of_emoji(progress)
    except AssetError as error:
        raise AssetError(f"the rows on emoji need their drawings: {error}") from error
    common = max(sets["taught"][0], key=lambda one: sum(other.category == one.category for other in sets["taught"][0]))
    rows = []
    for name, words in DRAWINGS.items():
        concepts, eyes = sets[name]
        said = [model.answers(one.astype(np.float32), [None, KIND]) for one in eyes]
        names = [plain(one.name) for one in concepts]
        kinds = [plain(one.category) for one in concepts]
        id = "emoji/" + name.replace(" ", "-")
        exact = [float(one[0] == wanted) for one, wanted in zip(said, names, strict=True)]
        shared = [overlap(one[0], wanted) for one, wanted in zip(said, names, strict=True)]
        shuffled = [
            float(np.mean([overlap(one[0], names[place]) for one, place in zip(said, order, strict=True)]))
            for order in (np.random.default_rng(seed).permutation(len(names)) for seed in seeds)
        ]
        kind = [float(one[1] == wanted) for one, wanted in zip(said, kinds, strict=True)]
        guess = [float(plain(common.category) == wanted) for wanted in kinds]
        for part, metric, values in (
            ("exact", f"{words}: the very name", exact),
            ("words", f"{words}: F1 of the name's words", shared),
            ("shuffled", f"{words}: the same against another's name (control)", shuffled),
            ("kind", f"{words}: its kind (one of about 80)", kind),
            ("kind-guess", f"{words}: the commonest kind, always", guess),
        ):
            rows.append(Row.of(f"{id}/{part}", metric, "%", "higher", 100 * float(np.mean(values))))
    return rows


def _costs(model: VisionLanguage, eye: npt.NDArray[np.floating], quick: bool) -> list[Row]:
    eye = eye.astype(np.float32)
    picture = tokens.opened(shapes("test")[0])
    times = interleave(
        {
            "answer": lambda: model.answer(eye, "what color is the shape?"),
            "first": lambda: next(model.stream(eye, "what color is the shape?")),
            "tokens": lambda: model.encoder.encode(picture),
        },
        rounds=5 if quick else 15,
    )
    words = {
        "answer": "an answer, given the picture's tokens",
        "first": "its first part, given the tokens",
        "tokens": "the tokens of a picture (DINOv2)",
    }
    rows = [Row.of(f"cost/{name}", words[name], "ms", "lower", timing.scaled(1e3)) for name, timing in times.items()]
    size = model.path.stat().st_size / 1e6
    return [*rows, Row.of("weights", "the committed file", "MB", "lower", size, target=LARGEST_FILE)]
