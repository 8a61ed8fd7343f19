"""The command line. `mmcache --help` is its manual; `cli.app` lists the commands and the exit codes."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (`sys.argv` by default) and return its exit code."""
    from mmcache.cli.app import run

    return run(argv)
