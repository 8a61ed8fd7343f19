"""One contender's application in a process of its own: JSON lines in, JSON lines out."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from mmcache.lab.gateways.doors import Door, door
from mmcache.model.errors import AssetError


def serve(name: str, upstream: str, proxy: str, folder: Path) -> None:
    """Answer until the input ends."""
    out = os.fdopen(os.dup(1), "w")  # what libraries print goes elsewhere
    os.dup2(2, 1)

    def tell(found: dict[str, Any]) -> None:
        out.write(json.dumps(found) + "\n")
        out.flush()

    try:
        opened: Door = door(name, upstream, proxy, folder)
    except AssetError as error:
        tell({"missing": str(error)})
        return
    tell({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.perf_counter()
        try:
            said = opened.ask(asked["body"], asked["key"], cached=asked["cached"])
        except Exception as error:  # noqa: BLE001 - whatever a library raises: the application has no answer
            tell({"failed": f"{type(error).__name__}: {error}"[:500]})
            continue
        tell({"ms": 1000 * (time.perf_counter() - began), "said": said.as_json()})
    opened.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
