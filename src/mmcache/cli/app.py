"""The commands, and what every one of them does with errors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Literal

from cyclopts import App, CycloptsError

from mmcache.cli import (
    advise,
    bench,
    cluster,
    dashboard,
    demo,
    drift,
    hot,
    lab,
    learn,
    look,
    operator,
    prefetch,
    purge,
    semantic,
    serve,
    signature,
    snapshots,
    sync,
    top,
    trace,
    warm,
)
from mmcache.cli.output import Exit, complain
from mmcache.model.errors import MMCacheError

HELP = """mmcache returns the features that your encoder computed before instead of computing them again.

Start with `mmcache demo`, which runs real encoders with and without the cache. The other commands look into a cache
folder (--root) or measure.

Exit codes: 0 done · 1 the answer is no (damage found, no such key, a target missed with --strict) ·
2 wrong command line · 3 could not be done (the message says why) · 130 interrupted
"""


def build() -> App:
    """The whole command tree."""
    app = App(
        name="mmcache",
        help=HELP,
        help_format="markdown",
        version=lambda: version("mmcache"),
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
    )
    app.command(demo.demo)
    app.command(demo.demo_cluster)
    for command in (look.stats, look.inspect, look.verify, look.explain, purge.purge, purge.rekey):
        app.command(command)
    app.command(advise.advise)
    app.command(snapshots.app)
    app.command(warm.warm)
    app.command(semantic.app)
    app.command(drift.app)
    app.command(prefetch.app)
    app.command(learn.app)
    app.command(signature.app)
    app.command(sync.app)
    app.command(serve.serve)
    app.command(operator.app)
    app.command(dashboard.dashboard)
    app.command(trace.trace)
    app.command(top.top)
    app.command(hot.hot)
    app.command(cluster.app)
    app.command(lab.app)
    app.command(bench.app)
    app.register_install_completion_command(add_to_startup=False)
    app.command(completion)
    return app


def completion(shell: Literal["bash", "zsh", "fish"]) -> int:
    """Print the completion script of `bash`, `zsh` or `fish`; `mmcache --install-completion` puts it in place.

    Example: mmcache completion bash > ~/.local/share/bash-completion/completions/mmcache
    """
    print(build().generate_completion(shell=shell))
    return Exit.DONE


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command; errors of ours become one line on stderr (and, with --json, an object on stdout)."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = build()(words)
        sys.stdout.flush()
    except CycloptsError as error:
        return _failed(Exit.USAGE, error, f"{error} (see mmcache --help)", words)
    except MMCacheError as error:
        return _failed(Exit.FAILED, error, str(error), words)
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except OSError as error:  # else Python would exit with 1, which is an answer here
        return _failed(Exit.FAILED, error, f"{error}; check that it exists and is yours", words)
    except KeyboardInterrupt:
        complain("interrupted")
        return Exit.INTERRUPTED
    return code if isinstance(code, int) else Exit.DONE


def _failed(code: Exit, error: Exception, message: str, words: Sequence[str]) -> Exit:
    if "--json" in words:
        print(json.dumps({"error": type(error).__name__, "message": message}))
    complain(message)
    return code
