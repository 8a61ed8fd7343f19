"""Every example runs, and so does every ```python and ```console block of the README and the guides.

* The python blocks of a page run in order in one fresh interpreter, in an empty folder with an empty cache; then its
  console lines that start with `$ `, in order, in the same folder.
* A block inside an HTML comment runs too and is not shown: the place for a page's set-up.
* `make X` must name a target, and installing is CI's own work; demo, lab and bench lines run with the slow tests.
* `<!-- not run: REASON -->` on the line before a block leaves it out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "results" not in p.parts)]
BLOCK = re.compile(r"(?P<skip><!-- not run: [^>]+ -->\n)?^```(?P<kind>python|console)\n(?P<body>.*?)^```$", re.M | re.S)
INSTALLS = ("git clone ", "cd ", "pip install ", "python -m pip ", "python3 -m venv ", "source ")
LONG = re.compile(r"\bmmcache (demo|bench|lab run)\b")


@dataclass(frozen=True)
class Page:
    path: Path
    python: str
    commands: tuple[str, ...]


def read(path: Path) -> Page:
    """The runnable text of a page; python blocks keep their line numbers, so that tracebacks point into the page."""
    text = path.read_text(encoding="utf-8")
    source = [""] * (text.count("\n") + 1)
    commands: list[str] = []
    for block in BLOCK.finditer(text):
        if block["skip"]:
            continue
        lines = block["body"].splitlines()
        if block["kind"] == "python":
            first = text.count("\n", 0, block.start("body"))
            source[first : first + len(lines)] = lines
        else:
            commands += [line[2:] for line in lines if line.startswith("$ ")]
    return Page(path, "\n".join(source), tuple(commands))


def environment(tmp_path: Path) -> dict[str, str]:
    home = {"HOME": str(tmp_path), "MMCACHE_ROOT": str(tmp_path / "cache"), "COLUMNS": "100"}
    return os.environ | home | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(command: list[str], tmp_path: Path, **options: str) -> None:
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=600, check=False,
        **options,
    )  # type: ignore[call-overload]  # fmt: skip
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"


ALL = [read(path) for path in PAGES]
LONG_COMMANDS = [(page.path.name, line) for page in ALL for line in page.commands if LONG.search(line)]


@pytest.mark.parametrize(
    "page", [page for page in ALL if page.python.strip() or page.commands], ids=lambda p: p.path.stem
)
def test_what_a_page_shows_runs(page: Page, tmp_path: Path) -> None:
    """The python first, then the console lines, all in one folder."""
    if page.python.strip():
        script = tmp_path / f"{page.path.stem}_page.py"  # not as a package is called: haystack.py would be imported
        script.write_text(page.python, encoding="utf-8")
        run([sys.executable, script.name], tmp_path)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for line in page.commands:
        if line.startswith("make "):
            assert set(line.split()[1:]) <= targets, f"{page.path.name} names a target that the Makefile lacks: {line}"
        elif not line.startswith(INSTALLS) and not LONG.search(line):
            run(["bash", "-euo", "pipefail", "-c", line], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "line"), LONG_COMMANDS)
def test_a_long_console_line_works(page: str, line: str, tmp_path: Path) -> None:
    run(["bash", "-euo", "pipefail", "-c", line], tmp_path)


def test_the_extractor_finds_blocks_and_keeps_line_numbers(tmp_path: Path) -> None:
    page = tmp_path / "x.md"
    page.write_text(
        "# T\n\n```python\na = 1\n```\n<!-- not run: costs money -->\n```python\nboom\n```\n"
        "<!--\n```python\nb = a\n```\n-->\n```console\n$ make test\noutput\n```\n",
        encoding="utf-8",
    )
    found = read(page)
    assert [line for line in found.python.splitlines() if line] == ["a = 1", "b = a"]
    assert found.python.splitlines()[3] == "a = 1"
    assert found.commands == ("make test",)


EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)], cwd=tmp_path, env=environment(tmp_path), capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_examples_are_numbered_without_a_gap() -> None:
    assert [path.name[:3] for path in EXAMPLES] == [f"{number:02}_" for number in range(1, len(EXAMPLES) + 1)]
