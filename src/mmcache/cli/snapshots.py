"""`mmcache snapshot`: carry a warm cache to another machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mmcache.cli.choose import EVERYTHING, Choice
from mmcache.cli.folder import disk_tier, require, secret
from mmcache.cli.output import DEFAULT_FOLDER, DEFAULT_SPEAK, Exit, Folder, Speak, bar, facts, show, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.snapshot import Manifest

app = App(name="snapshot", help="Save blocks into one safetensors file, and load them into a cold cache.")

File = Annotated[Path, Parameter(help="The snapshot file, by custom NAME.safetensors.")]


@app.command
def save(file: File, *, choice: Choice = EVERYTHING, folder: Folder = DEFAULT_FOLDER) -> int:
    """Write the blocks of a cache folder, or only some of them, to a file.

    Example: mmcache snapshot save warm.safetensors --model 'clip*'
    """
    from mmcache import snapshot

    require(folder)
    with disk_tier(folder) as tier, bar(folder) as progress:
        done = snapshot.save(tier, file, secret=secret(folder), match=choice.matcher(), progress=progress)
    show(folder, {"file": str(file), **asdict(done)}, lambda: _view(file, done))
    return Exit.DONE


@app.command
def load(
    file: File,
    *,
    disk: Annotated[str, Parameter(help="Largest size of the folder, e.g. 50GiB.")] = "10GiB",
    folder: Folder = DEFAULT_FOLDER,
) -> int:
    """Put the blocks of a file into a cache folder, which is made if missing.

    The folder needs the realm secret that the file was saved with: `mmcache snapshot show` names it.

    Example: mmcache snapshot load warm.safetensors --root /var/cache/mmcache
    """
    from mmcache import snapshot

    snapshot.manifest(file)  # a mistyped file must not make a cache
    own = secret(folder)  # first: a new folder needs its key before it gets blocks
    with disk_tier(folder, limit=disk) as tier, bar(folder) as progress:
        done = snapshot.load(file, tier, secret=own, progress=progress)
    lines = {"blocks loaded": done.blocks, "expired, left out": done.expired}
    lines |= {f"refused: {reason}": count for reason, count in done.refused.items()}
    show(folder, {"file": str(file), **asdict(done)}, lambda: facts(f"Loaded {file}", lines))
    return Exit.NO if done.refused else Exit.DONE


@app.command(name="show")
def describe(file: File, *, speak: Speak = DEFAULT_SPEAK) -> int:
    """Say what a file holds, without loading it.

    Example: mmcache snapshot show warm.safetensors
    """
    from mmcache import snapshot

    found = snapshot.manifest(file)
    show(speak, {"file": str(file), **asdict(found)}, lambda: _view(file, found))
    return Exit.DONE


def _view(file: Path, found: Manifest) -> RenderableType:
    lines: dict[str, object] = {
        "blocks": found.blocks,
        "payload": size(found.payload_bytes),
        "models": ", ".join(found.models) or "–",
        "signatures": len(found.signatures),
        "needs the realm secret": found.realm,
        "format": found.version,
    }
    return facts(f"Snapshot {file}", lines)
