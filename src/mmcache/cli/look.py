"""`mmcache stats`, `inspect`, `verify`, `explain`: look, and change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from mmcache.cli.folder import SharedUrl, disk_tier, require, secret, shared_tier
from mmcache.cli.output import DEFAULT_FOLDER, Exit, Folder, bar, complain, facts, grid, show, size
from mmcache.model.clock import SystemClock
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key
from mmcache.tiers.base import Found, Tier

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHORTEST_PREFIX = 4


def stats(*, shared: SharedUrl = None, folder: Folder = DEFAULT_FOLDER) -> int:
    """Say how much a cache folder holds, or the shared tier, and for whom.

    Example: mmcache stats --root ~/.cache/mmcache
    """
    blocks: Counter[tuple[str, str, str, str]] = Counter()
    held_bytes: Counter[tuple[str, str, str, str]] = Counter()
    if shared is None:
        require(folder)
    with disk_tier(folder) if shared is None else shared_tier(folder, shared) as tier:
        gauges = tier.stats()
        for held in tier.scan():
            who = held.tenant, held.namespace, held.model, held.modality
            blocks[who] += 1
            held_bytes[who] += held.size
    fields = "tenant", "namespace", "model", "modality"
    owners = sorted(blocks, key=lambda who: -held_bytes[who])
    groups = [dict(zip(fields, who, strict=True)) | {"blocks": blocks[who], "bytes": held_bytes[who]} for who in owners]
    data = {"blocks": gauges.blocks, "bytes": gauges.bytes, "detail": gauges.detail, "groups": groups}
    place = "shared tier"
    if shared is None:
        data, place = {"root": str(folder.path)} | data, str(folder.path)
    lines = [(*who, blocks[who], size(held_bytes[who])) for who in owners]
    title = f"{place}: {gauges.blocks} blocks, {size(gauges.bytes)}"
    show(folder, data, lambda: grid(title, (*fields, "blocks", "bytes"), lines))
    return Exit.DONE


def inspect(
    key: Annotated[str, Parameter(help="A key as mmcache prints it, or the first digits of it or of its second part.")],
    *,
    folder: Folder = DEFAULT_FOLDER,
) -> int:
    """Say what is stored under a key: of which model, how encoded, until when.

    Example: mmcache inspect 3f9a1c
    """
    require(folder)
    with disk_tier(folder) as tier:
        wanted = list(_matching(tier, key))
        found = [entry for entry in tier.get(wanted) if isinstance(entry, Found)]
        pages = [_page(entry) for entry in found]
    if not pages:
        complain(f"nothing is stored under {key}; `mmcache stats` says what there is")
    show(folder, pages, lambda: _pages(pages))
    return Exit.DONE if pages else Exit.NO


def _matching(tier: Tier, text: str) -> Iterator[Key]:
    try:
        yield Key.parse(text)
    except InvalidInputError:
        digits = text.replace(".", "").lower()
        if len(digits) < _SHORTEST_PREFIX or set(digits) - set("0123456789abcdef"):
            raise InvalidInputError(
                f"not a key: {text!r}; give it as mmcache prints it, or its first {_SHORTEST_PREFIX} digits or more"
            ) from None
        keys = (held.key for held in tier.scan())
        yield from (key for key in keys if key.hex().startswith(digits) or key.digest.hex().startswith(digits))


def _page(entry: Found) -> dict[str, Any]:
    header = entry.frame.header
    left = None if entry.deadline is None else entry.deadline - SystemClock().monotonic()
    return {
        "key": str(entry.frame.key),
        "tenant": header.tenant,
        "namespace": header.namespace,
        "model": header.model,
        "signature": header.signature.hex(),
        "modality": header.modality,
        "created": _when(header.created),
        "expires_in_seconds": left,
        "compute_seconds": header.cost,
        "bytes": entry.frame.size,
        "intact": entry.frame.intact(),
        "arrays": [
            {
                "kind": leaf.kind,
                "dtype": leaf.dtype,
                "shape": list(leaf.shape),
                "codecs": [step.name for step in leaf.chain],
                "bytes": leaf.length,
            }
            for leaf in header.leaves
        ],
    }


def _pages(pages: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group

    parts: list[RenderableType] = []
    for page in pages:
        arrays = [
            f"{leaf['dtype']}{leaf['shape']} {'→'.join(leaf['codecs']) or 'raw'} {size(leaf['bytes'])}"
            for leaf in page["arrays"]
        ]
        lines = {name: value for name, value in page.items() if name not in ("key", "arrays")}
        lines["expires_in_seconds"] = "never" if page["expires_in_seconds"] is None else page["expires_in_seconds"]
        parts.append(facts(page["key"], lines | {"arrays": "\n".join(arrays)}))
    return Group(*parts)


def explain(
    source: Annotated[
        Path,
        Parameter(help="A picture, sound or video file; with --modality text, a text file; or a trace of requests."),
    ],
    *,
    modality: Annotated[
        Literal["image", "text", "audio", "video", "trace"] | None,
        Parameter(show_default=False, help="How the file is read. Default: as a trace where it is one, else image."),
    ] = None,
    tenant: Annotated[str, Parameter(help="On whose behalf.")] = "default",
    namespace: Annotated[str, Parameter(help="In which namespace.")] = "default",
    folder: Folder = DEFAULT_FOLDER,
) -> int:
    """Say what a file's content is to the cache, and what is stored for it, by which model.

    Exit code 1 when nothing is. Blocks that were computed with further arguments besides the file are not found.

    Of a trace (JSON lines that a `TraceLog` wrote) it says why the last request that missed had hit before: which
    component of its key moved. Exit code 1 when no miss has an earlier hit.

    Example: mmcache explain cat.png
    """
    from mmcache.cli.traces import explain_trace
    from mmcache.keys.content import ContentOptions, identify
    from mmcache.keys.drift.trace import is_trace
    from mmcache.keys.realm import RealmKeys

    if modality == "trace" or (modality is None and is_trace(source)):
        return explain_trace(source, folder)
    modality = modality or "image"
    require(folder)
    given = _text(source) if modality == "text" else source
    salt = RealmKeys(secret(folder)).salt(tenant, namespace)
    content = identify(given, modality, salt=salt, memo=None, options=ContentOptions())
    with disk_tier(folder) as tier:
        wanted = [held.key for held in tier.scan() if held.key.digest == content.digest]
        pages = [_page(entry) for entry in tier.get(wanted) if isinstance(entry, Found)]
    data = {
        "content": content.digest.hex(),
        "decoder": content.decoder,
        "tenant": tenant,
        "namespace": namespace,
        "stored": pages,
    }
    lines = {name: value for name, value in data.items() if name != "stored"} | {"stored blocks": len(pages)}

    def view() -> RenderableType:
        from rich.console import Group

        return Group(facts(str(source), lines), _pages(pages))

    show(folder, data, view)
    return Exit.DONE if pages else Exit.NO


def _text(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a path that cannot be one
        raise InvalidInputError(f"cannot read the text file {source}: {error}") from error


def _when(created: float) -> str:
    try:
        return datetime.fromtimestamp(created, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # a clock that was far off, or no number
        return f"{created} s"


def verify(*, folder: Folder = DEFAULT_FOLDER) -> int:
    """Read every stored byte and compare it with its checksum; exit code 1 when something is damaged.

    A damaged block is never served: it is a miss. Verifying changes nothing.

    Example: mmcache verify
    """
    require(folder)
    with disk_tier(folder) as tier, bar(folder) as progress:
        report = tier.verify(progress)
    damage = [{"key": str(key), "problem": problem} for key, problem in report.corrupt]
    data = {
        "root": str(folder.path),
        "ok": report.ok,
        "blocks": report.blocks,
        "bytes": report.bytes,
        "segments": report.segments,
        "seconds": report.seconds,
        "corrupt": damage,
        "inconsistent": list(report.inconsistent),
    }

    def view() -> RenderableType:
        verdict = "whole" if report.ok else "DAMAGED; the blocks below are misses, `mmcache purge` removes them"
        title = f"{folder.path}: {report.blocks} blocks, {size(report.bytes)} read, {verdict}"
        lines = [(one["key"], one["problem"]) for one in damage] + [("index", text) for text in report.inconsistent]
        return grid(title, ("where", "problem"), lines)

    show(folder, data, view)
    return Exit.DONE if report.ok else Exit.NO
