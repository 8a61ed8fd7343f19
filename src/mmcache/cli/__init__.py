"""The command line. `mmcache --help` is its manual; `cli.app` lists the commands and the exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (`sys.argv` by default) and return its exit code.

    What Ctrl-C means is known here already: most of a short command's time goes into importing what it needs.
    """
    try:
        from mmcache.cli.app import run

        return run(argv)
    except KeyboardInterrupt:  # `run` tells of its own: this one came before it began, or after it had ended
        print("mmcache: interrupted", file=sys.stderr)
        return INTERRUPTED
