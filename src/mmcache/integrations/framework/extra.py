"""`require`: which extra to install, where a door's framework is missing."""

from __future__ import annotations

from importlib.util import find_spec


def require(module: str, extra: str) -> None:
    """Raises `ModuleNotFoundError` where `module` cannot be imported."""
    try:
        found = find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that is missing
        found = False
    if not found:
        raise ModuleNotFoundError(f"this door needs {module}: run pip install 'mmcache[{extra}]'", name=module)
