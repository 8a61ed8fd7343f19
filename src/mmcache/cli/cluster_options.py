"""Options of `mmcache cluster`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mmcache.cli.output import Speak
from mmcache.model.errors import ScaleError, SettingsError
from mmcache.settings import parse_bytes

if TYPE_CHECKING:
    from mmcache.scale.local import Handle


@Parameter(name="*")
@dataclass(frozen=True)
class Place(Speak):
    """Which cluster."""

    name: Annotated[str, Parameter(help="Of the cluster, where there are several on this machine.")] = "default"
    folder: Annotated[
        Path | None, Parameter(help="Where its files are. Default: ~/.local/state/mmcache/cluster/NAME.")
    ] = None

    @property
    def handle(self) -> Handle:
        """Of the cluster meant. Raises `ScaleError`."""
        from mmcache.scale.local import Handle, default_folder

        return Handle(self.folder or default_folder(self.name))

    @property
    def there(self) -> Handle:
        """Of the cluster meant, which there is. Raises `ScaleError`, which names those that there are."""
        from mmcache.scale.local import default_folder

        handle = self.handle
        if not handle.exists:
            folders = sorted(path.parent for path in default_folder().parent.glob("*/spec.json"))
            others = ", ".join(f"--name {folder.name}" for folder in folders)
            told = f"there is no cluster in {handle.files.folder}: mmcache cluster up{self.words} makes one"
            raise ScaleError(told + (f"; there are {others}" if others else ""))
        return handle

    @property
    def words(self) -> str:
        """What a command needs to find it again."""
        if self.folder is not None:
            return f" --folder {shlex.quote(str(self.folder))}"
        return "" if self.name == "default" else f" --name {self.name}"


@Parameter(name="*")
@dataclass(frozen=True)
class Wishes:
    """Options that say what is wanted of a cluster; those not given stay as they are."""

    min_shards: Annotated[
        int | None, Parameter(name=("--shards", "--min-shards"), help="Shards at least, 3 or more. At first: 3.")
    ] = None
    max_shards: Annotated[
        int | None, Parameter(help="Shards at most; more than --shards: it grows and shrinks with its load.")
    ] = None
    replicas: Annotated[int | None, Parameter(help="Of each shard, 0 to 5. At first: 1.")] = None
    qps_threshold: Annotated[
        float | None, Parameter(help="Thousands of requests a second that one shard is to carry. At first: 20.")
    ] = None
    memory: Annotated[str | None, Parameter(help="Of each node for blocks: 1GiB. At first: 256MiB.")] = None
    allow_eviction: Annotated[
        bool | None, Parameter(help="Shrink, or take memory away, even where blocks must be evicted for it.")
    ] = None
    window: Annotated[str | None, Parameter(help="The load is a mean over so long. At first: 60s.")] = None
    factor: Annotated[float | None, Parameter(help="A burst is so many times what is usual. At first: 1.5.")] = None
    end_factor: Annotated[float | None, Parameter(help="It is over below so many times. At first: 1.2.")] = None
    quiet: Annotated[str | None, Parameter(help="No shard goes before it was quiet for so long. At first: 300s.")] = (
        None
    )
    fewest_samples: Annotated[int | None, Parameter(help="Of the load, before it counts. At first: 10.")] = None
    step: Annotated[int | None, Parameter(help="Shards that one burst adds at most. At first: 2.")] = None

    def change(self) -> dict[str, Any]:
        """As `Handle.up` takes it: what was given only. Raises `SettingsError`."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        plain = ("min_shards", "max_shards", "replicas", "qps_threshold", "allow_eviction")
        found: dict[str, Any] = {name: given[name] for name in plain if given[name] is not None}
        if self.memory is not None:
            found["memory_bytes"] = _bytes("--memory", self.memory)
        burst = {
            "window_seconds": None if self.window is None else _seconds("--window", self.window),
            "quiet_seconds": None if self.quiet is None else _seconds("--quiet", self.quiet),
            "factor": self.factor,
            "end_factor": self.end_factor,
            "fewest_samples": self.fewest_samples,
            "most_shards_a_step": self.step,
        }
        burst = {name: value for name, value in burst.items() if value is not None}
        return found | ({"burst": burst} if burst else {})


DEFAULT_PLACE, NO_WISHES = Place(), Wishes()
_OPTIONS = {
    "minShards": "--shards", "maxShards": "--max-shards", "qpsThreshold": "--qps-threshold",
    "burst.windowSeconds": "--window", "burst.factor": "--factor", "burst.endFactor": "--end-factor",
    "burst.quietSeconds": "--quiet", "burst.fewestSamples": "--fewest-samples", "burst.mostShardsAStep": "--step",
}  # fmt: skip
"""What a field of a resource is called here."""
Wait = Annotated[bool, Parameter(help="Wait until it is so, and show how far it is.")]


def in_options(told: str) -> str:
    """The same, in words that can be typed: a message of `ClusterSpec` names fields as Kubernetes does."""
    named = re.sub("|".join(map(re.escape, _OPTIONS)), lambda match: _OPTIONS[match[0]], told)
    return re.sub(r"^(memory|replicas) must", r"--\1 must", named)


@contextmanager
def options_named() -> Iterator[None]:
    """Raises `SettingsError` in the words of the options."""
    try:
        yield
    except SettingsError as error:
        raise SettingsError(in_options(str(error))) from error


def _bytes(option: str, text: str) -> int:
    try:
        return parse_bytes(text)
    except SettingsError as error:
        raise SettingsError(f"{option}: {error}") from error


def _seconds(option: str, text: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|h)?\s*", text)
    if match is None:
        raise SettingsError(f"{option} is a time like 30s, 5m or 1h, not {text!r}")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]
