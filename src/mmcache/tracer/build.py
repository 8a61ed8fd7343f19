"""Make the object file that the package brings: `python -m mmcache.tracer.build`."""

from __future__ import annotations

from mmcache.tracer.program import brought, compiled


def main() -> None:
    """For this machine."""
    raw = compiled()
    brought().write_bytes(raw)
    print(f"{brought().name}: {len(raw)} bytes")


if __name__ == "__main__":
    main()
