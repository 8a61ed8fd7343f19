"""Rehearse the incident for people: leave the dashboard up to look around, or take the walk-through's pictures."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mmcache.lab.incident.rehearsal import Rehearsal

WIDTH = 100
"""Columns of the terminal whose text is kept."""


def perform(screenshots: Path | None) -> None:
    """Play it; then pictures and a terminal's text go to `screenshots`, or the dashboard stays until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="mmcache-incident-") as folder, Rehearsal(Path(folder)) as rehearsal:
        begin, end = rehearsal.plan.window
        rehearsal.play(_shown)
        address = f"{rehearsal.page}/?from={begin:.0f}&to={end:.0f}&by=tenant"
        if screenshots is None:
            print(f"the incident at 02:15: {address}\nin a terminal: {' '.join(top(rehearsal))}", file=sys.stderr)
            _until_interrupted()
            return
        from mmcache.lab.incident.screens import take

        for path in take(rehearsal.get, rehearsal.page, rehearsal.plan.window, screenshots):
            print(path)
        (screenshots / "top.txt").write_text(captured(rehearsal), encoding="utf-8")


def top(rehearsal: Rehearsal) -> list[str]:
    """The command that shows the whole story in a terminal."""
    begin, end = rehearsal.plan.window
    until = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(end))
    return ["mmcache", "top", "--from", rehearsal.page, "--minutes", f"{(end - begin) / 60:.0f}", "--until", until]


def captured(rehearsal: Rehearsal) -> str:
    """What that command prints, without the address, which is another one each time, and spaces at ends of lines."""
    words = [sys.executable, "-m", "mmcache.cli", *top(rehearsal)[1:], "--once"]
    environment = {"COLUMNS": str(WIDTH), "PYTHONIOENCODING": "utf-8", "PATH": os.defpath}
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=environment)
    lines = done.stdout.decode().replace(rehearsal.page, "http://127.0.0.1:4318").splitlines()
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _shown(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\rminute {done} of {total}", end="\n" if done == total else "", file=sys.stderr)


def _until_interrupted() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return
