"""Emoji: 1 562 concepts, drawn by Noto (Apache-2.0), Fluent (MIT) and Twemoji (CC BY 4.0), named by emojibase (MIT).

A caption is the label and the tags of Unicode's CLDR in one language: `nerd face: brainy, clever, expert`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgspec
from PIL import Image

from mmcache.lab.data.concepts import Concept, drawn
from mmcache.lab.fetch import PACKAGES

LANGUAGES = ("en", "es", "fr", "ru")
STYLES = ("noto", "fluent", "twemoji")
_SKIN_AND_HAIR = 2


class _Emoji(msgspec.Struct):
    label: str
    hexcode: str
    tags: list[str] = []
    group: int | None = None
    subgroup: int | None = None

    @property
    def caption(self) -> str:
        return f"{self.label}: {', '.join(self.tags)}" if self.tags else self.label


class _Groups(msgspec.Struct):
    subgroups: dict[int, str]


class _Icon(msgspec.Struct):
    body: str
    width: float = 0
    height: float = 0


class _Icons(msgspec.Struct):
    icons: dict[str, _Icon]
    width: float
    height: float

    def svg(self, name: str) -> str:
        icon = self.icons[name]
        box = f"0 0 {icon.width or self.width} {icon.height or self.height}"
        links = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        return f'<svg {links} viewBox="{box}">{icon.body}</svg>'


def _json(package: str, file: str, kind: Any) -> Any:
    return msgspec.json.decode((PACKAGES[package].folder() / file).read_bytes(), type=kind)


@cache
def _names(language: str) -> dict[str, _Emoji]:
    return {one.hexcode: one for one in _json("emojibase", f"{language}/data.json", list[_Emoji])}


@cache
def emoji() -> tuple[Concept, ...]:
    """Those that all three draw, in Unicode's order; category = Unicode's subgroup. Raises `AssetError`."""
    icons = {style: _json(style, "icons.json", _Icons) for style in STYLES}
    codes = {style: _json(style, "chars.json", dict[str, str]) for style in ("noto", "twemoji")}
    subgroups = _json("emojibase", "meta/groups.json", _Groups).subgroups
    found = []
    for code, one in _names("en").items():
        if one.group in (None, _SKIN_AND_HAIR) or one.subgroup is None:
            continue
        low = code.lower()
        drawings: dict[str, str | None] = {
            style: known.get(low) or known.get(low.replace("-fe0f", "")) for style, known in codes.items()
        }
        drawings["fluent"] = re.sub(r"[^a-z0-9]+", "-", one.label.lower().replace("’", "")).strip("-")
        if any(drawings[style] not in icons[style].icons for style in STYLES):
            continue
        pictures = {style: _drawing(icons[style], drawings[style] or "") for style in STYLES}
        texts = {language: _names(language)[code].caption for language in LANGUAGES if code in _names(language)}
        found.append(Concept(one.label, subgroups[one.subgroup], pictures, texts))
    return tuple(found)


def _drawing(icons: _Icons, name: str) -> Callable[[], Image.Image]:
    return partial(_draw, icons, name)


def _draw(icons: _Icons, name: str) -> Image.Image:
    return drawn(icons.svg(name))
