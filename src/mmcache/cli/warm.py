"""`mmcache warm`: fill a cache with what is in videos, before anybody asks."""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mmcache.cli.output import DEFAULT_FOLDER, Exit, Folder, bar, complain, grid, show, size
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.settings import parse_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.cache import Cache
    from mmcache.prefetch.media import Encoders, Warmed


def warm(
    *,
    video: Annotated[list[Path], Parameter(consume_multiple=True, negative="", help="Video files.")],
    ocr: Annotated[bool, Parameter(help="Find print in frames, and read it.")] = False,
    asr: Annotated[bool, Parameter(help="Find speech, and hear it.")] = False,
    frames: Annotated[bool, Parameter(help="Encode the frames that begin a scene.")] = True,
    encoders: Annotated[
        str | None,
        Parameter(
            help="MODULE:FUNCTION of yours, from a cache to your encoders by name (frame, find, read, listen, hear, "
            "text). Default: the demo's, and those of the extra `warm`."
        ),
    ] = None,
    asr_model: Annotated[
        str | None, Parameter(help="Folder of a Whisper model in CTranslate2's format. Default: the packaged tiny.en.")
    ] = None,
    budget_seconds: Annotated[float | None, Parameter(help="Stop each file's work after so long.")] = None,
    budget_bytes: Annotated[str | None, Parameter(help="Stop each file's work after so much was made, 200MiB.")] = None,
    resume: Annotated[bool, Parameter(help="Go on where an earlier run was stopped.")] = True,
    timeline: Annotated[
        Path | None,
        Parameter(help="Write what is seen, read and heard when: a JSON file; of several videos, a folder."),
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
) -> int:
    """Compute features of frames, print and speech of videos, and store them where later requests find them.

    Needs `pip install 'mmcache[warm]'`. Stopped at any time, it goes on there. Exit code 1 when something could not be
    read or a model failed (the rest is warm), or a budget ended it; 3 when nothing of a file could be used.

    Example: mmcache warm --video talk.mp4 --ocr --asr --timeline talk.json
    """
    from mmcache.cache import Cache
    from mmcache.prefetch.media import Uses, WarmOptions, warm_video

    options = WarmOptions(
        frames=frames, ocr=ocr, asr=asr, budget_seconds=budget_seconds, resume=resume,
        budget_bytes=None if budget_bytes is None else parse_bytes(budget_bytes),
    )  # fmt: skip
    for path in video:
        if not path.is_file():  # before models are loaded, and a mistyped name makes a cache
            raise InvalidInputError(f"there is no video file {path}")
    if timeline is not None:
        _writable(timeline, single=len(video) == 1)
    make = None if encoders is None else _imported(encoders)
    found: list[tuple[Path, Warmed]] = []
    failed: list[tuple[Path, str]] = []
    with Cache(folder.path) as cache, bar(folder) as progress:
        models = _default(cache, options, asr_model) if make is None else make(cache)
        uses = Uses.of(cache)
        for path in video:
            try:
                found.append((path, warm_video(cache, path, models, options, uses=uses, progress=progress)))
            except InvalidInputError as error:
                failed.append((path, str(error)))
        uses.save()
    for _, message in failed:
        complain(message)
    if timeline is not None and found:
        _write(timeline, found, single=len(video) == 1)
    data = [_facts(path, warmed) for path, warmed in found]
    data += [{"file": str(path), "error": message} for path, message in failed]
    if found or folder.json:
        show(folder, data, lambda: _view(found))
    if failed:
        return Exit.FAILED
    whole = all(warmed.timeline.complete and not warmed.timeline.fault_count for _, warmed in found)
    return Exit.DONE if whole else Exit.NO


def _imported(name: str) -> Any:
    module, mark, attribute = name.partition(":")
    if not mark or not module or not attribute:
        raise SettingsError(f"--encoders is MODULE:FUNCTION, not {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = importlib.import_module(module)
        for part in attribute.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(f"cannot import --encoders {name}: {error}") from error
    if not callable(function):
        raise SettingsError(f"--encoders {name} is no function")
    return function


def _default(cache: Cache, options: Any, asr_model: str | None) -> Encoders:
    """What the extra brings, and the demo's encoders of pictures and text where they are installed."""
    from mmcache.model.errors import AssetError
    from mmcache.prefetch.media import Encoders, packaged

    found = packaged(cache, ocr=options.ocr, asr=options.asr, asr_model=asr_model)
    try:
        from mmcache.lab.models import ImageEncoder, TextEncoder
    except ImportError as error:
        return _without_frames(found, options, error)
    if options.ocr or options.asr:
        with suppress(AssetError):  # then what is read and heard is stored, and not encoded
            texts = TextEncoder()
            texts.load()
            text = cache.wrap(texts.encode, modality="text", signature=texts.signature, guard=False)
            found = found.filled(Encoders(text=text))
    if not options.frames:
        return found
    try:
        pictures = ImageEncoder()
        pictures.load()
        frame = cache.wrap(pictures.encode, modality="image", signature=pictures.signature, guard=False)
    except AssetError as error:
        return _without_frames(found, options, error)
    return found.filled(Encoders(frame=frame))


def _without_frames(found: Encoders, options: Any, error: Exception) -> Encoders:
    if options.frames:
        complain(f"frames are not encoded: {error}; give yours with --encoders, or say --no-frames")
    return found


def _writable(target: Path, *, single: bool) -> None:
    """Before an hour's work ends at a folder that is not there. Raises `SettingsError`."""
    if single and target.is_dir():
        raise SettingsError(f"--timeline {target} is a folder; of one video it is a file")
    if single and not target.parent.is_dir():
        raise SettingsError(f"--timeline {target}: there is no folder {target.parent}")
    if not single and target.exists() and not target.is_dir():
        raise SettingsError(f"--timeline {target} is a file; of several videos it is a folder")


def _write(target: Path, found: list[tuple[Path, Warmed]], *, single: bool) -> None:
    if single:
        found[0][1].timeline.write(target)
        return
    target.mkdir(parents=True, exist_ok=True)
    names: set[str] = set()
    for number, (path, warmed) in enumerate(found):
        name = f"{path.stem}.json" if f"{path.stem}.json" not in names else f"{path.stem}-{number}.json"
        names.add(name)
        warmed.timeline.write(target / name)


def _facts(path: Path, warmed: Warmed) -> dict[str, Any]:
    line = warmed.timeline
    return {
        "file": str(path),
        "complete": line.complete,
        "duration_ms": line.duration_ms,
        "frames_seen": warmed.frames_seen,
        "scenes": len(line.scenes),
        "regions": len(line.regions),
        "speech": len(line.speech),
        "done": warmed.done,
        "known": warmed.known,
        "failed": warmed.failed,
        "bytes": warmed.bytes,
        "seconds": round(warmed.seconds, 3),
        "weights": {kind: round(weight, 3) for kind, weight in warmed.weights.items()},
        "faults": line.as_dict()["faults"],
        "fault_count": line.fault_count,
    }


def _view(found: list[tuple[Path, Warmed]]) -> RenderableType:
    from rich.console import Group

    rows = [
        (
            path.name if warmed.timeline.complete else f"{path.name} (budget spent)",
            f"{warmed.timeline.duration_ms / 1000:.1f} s", len(warmed.timeline.scenes), len(warmed.timeline.regions),
            len(warmed.timeline.speech), sum(warmed.done.values()), sum(warmed.known.values()),
            size(warmed.bytes), f"{warmed.seconds:.1f} s",
        )
        for path, warmed in found
    ]  # fmt: skip
    columns = ("file", "length", "scenes", "lines", "speech", "done", "before", "made", "took")
    faults = [
        (path.name, fault.where, f"{fault.at_ms / 1000:.1f} s", fault.what)
        for path, warmed in found
        for fault in warmed.timeline.faults[:10]
    ]
    count = sum(warmed.timeline.fault_count for _, warmed in found)
    return Group(
        grid("Warmed", columns, rows),
        *([grid(f"Left out ({count})", ("file", "where", "at", "what"), faults)] if faults else ()),
    )
