"""Tux Paint's stamps (GPL-2; installed, never redistributed): pictures, captions in many languages, spoken captions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from mmcache.lab.data.concepts import Concept, opened
from mmcache.lab.fetch import PACKAGES

LANGUAGES = ("bg", "ca", "es", "fr", "ro", "ru")
"""Of the spoken captions that are used: some 900 clips each."""
STYLES = frozenset(("cartoon", "toys", "plastic"))
"""Folders that say how a thing is drawn, not what it is."""

MOST = 3
"""Pictures of one caption."""


@cache
def stamps() -> tuple[Concept, ...]:
    """One concept an English caption; category = the first two folders. Raises `AssetError`."""
    home = PACKAGES["stamps"].folder() / "usr/share/tuxpaint/stamps"
    same: defaultdict[str, list[Path]] = defaultdict(list)
    captions = {}
    for path in sorted(home.rglob("*.txt")):
        found = dict(_captions(path))
        if "en" in found and _picture(path) is not None:
            captions[path] = found
            same[found["en"].lower()].append(path)
    return tuple(_concept(home, paths, captions[paths[0]]) for paths in same.values())


def _concept(home: Path, paths: list[Path], texts: Mapping[str, str]) -> Concept:
    folders = [part for part in paths[0].relative_to(home).parts[:-1] if part not in STYLES]
    pictures = {
        str(i or ""): opened(picture) for i, path in enumerate(paths[:MOST]) if (picture := _picture(path)) is not None
    }
    clips = {language: paths[0].with_name(f"{paths[0].stem}_desc_{language}.ogg") for language in LANGUAGES}
    sounds = {language: clip for language, clip in clips.items() if language in texts and clip.is_file()}
    return Concept(
        "/".join(paths[0].relative_to(home).with_suffix("").parts), "/".join(folders[:2]), pictures, texts, sounds
    )


def _picture(text: Path) -> Path | None:
    return next((path for end in (".png", ".svg") if (path := text.with_suffix(end)).is_file()), None)


def _captions(path: Path) -> Iterator[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if lines and lines[0].strip():
        yield "en", lines[0].strip()
    for line in lines[1:]:
        language, mark, caption = line.partition(".utf8=")
        if mark and language in LANGUAGES and caption.strip():
            yield language, caption.strip()
