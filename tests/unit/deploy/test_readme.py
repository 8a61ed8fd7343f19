"""The kit's README names every file, and no file that is not there."""

from __future__ import annotations

import re

from tests.unit.deploy.kit import DEPLOY, ROOT

TEXT = (DEPLOY / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs/how-to/monitor.md").read_text(encoding="utf-8")


def test_every_file_is_named() -> None:
    for path in DEPLOY.rglob("*"):
        name = path.relative_to(DEPLOY).as_posix()
        if path.is_file() and name != "README.md":
            assert name in TEXT or any(
                f"`{parent}/`" in TEXT for parent in map(str, path.relative_to(DEPLOY).parents)
            ), name


def test_every_command_names_files_that_are_there() -> None:
    for text in (TEXT, GUIDE):
        named = re.findall(r"\bdeploy/[a-z_./-]+[a-z]", text)
        assert named
        for name in named:
            assert (ROOT / name).exists(), name


def test_scripts_may_be_run() -> None:
    assert all(path.stat().st_mode & 0o111 for path in DEPLOY.rglob("*.sh"))
