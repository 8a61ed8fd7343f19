"""Why a pod does not run, as Kubernetes says it: what a user would look for next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FINE = ("ContainerCreating", "PodInitializing")
_CRASHED = "CrashLoopBackOff"
_OFTEN = 2
"""Restarts of a container that is not ready."""
_LONGEST = 200
_SHOWN = 3


def of_pod(found: Mapping[str, Any]) -> str | None:
    """None: nothing is wrong, as far as Kubernetes knows."""
    status = found.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _said(condition)
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in (*_FINE, _CRASHED):
            return _said(waiting)
        again = int(container.get("restartCount") or 0)
        if not container.get("ready") and (again >= _OFTEN or waiting.get("reason") == _CRASHED):
            ended = (container.get("lastState") or {}).get("terminated") or {}
            why = {"reason": waiting.get("reason") or ended.get("reason"), "message": f"started {again + 1} times"}
            return _said(why) + (f", ended with {ended['exitCode']}" if "exitCode" in ended else "")
    return None


def told(message: str, troubles: Mapping[str, str]) -> str:
    """`message`, and after it what is the matter with some members."""
    shown = [f"{name}: {trouble}" for name, trouble in sorted(troubles.items())[:_SHOWN]]
    more = ["…"] if len(troubles) > _SHOWN else []
    return "; ".join([message, *shown, *more])


def _said(one: Mapping[str, Any]) -> str:
    words = [str(one[key]) for key in ("reason", "message") if one.get(key)]
    return ", ".join(words)[:_LONGEST] or "it waits"
