"""`python -m mmcache.lab.kubernetes [--json]`: builds the servers where they are not yet; prints where they are."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from mmcache.lab.kubernetes.build import COMMAND, build
from mmcache.model.errors import AssetError


def main(words: Sequence[str]) -> int:
    """0 = they are here, 3 = they cannot be had."""
    if set(words) - {"--json"}:
        print(f"usage: {COMMAND} [--json]", file=sys.stderr)
        return 2
    started = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {what}", file=sys.stderr, flush=True)

    try:
        servers = build(tell)
    except AssetError as error:
        print(json.dumps({"error": str(error)}) if "--json" in words else error, file=sys.stderr)
        return 3
    print(json.dumps({"folder": str(servers.folder), **servers.manifest}) if "--json" in words else servers.folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
