"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mmcache

SOURCE = Path(mmcache.__file__).resolve().parent
FILES = sorted(SOURCE.rglob("*.py"))
MOST_LINES = 400
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
HEAVY = ("torch", "redis", "opentelemetry", "scipy", "PIL", "av", "soundfile", "lmdb", "matplotlib", "rich", "cyclopts")


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def public_definitions(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Public functions, classes and methods. What a method overrides, it need not say again."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in node.decorator_list):
            continue
        yield f"{owner}{node.name}", node
        if isinstance(node, ast.ClassDef) and not owner:
            yield from public_definitions(node.body, f"{node.name}.")


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), f"{module_of(path)} has no docstring"


@pytest.mark.parametrize("name", [name for name in mmcache.__all__ if not name.startswith("__")])
def test_every_public_name_is_documented(name: str) -> None:
    thing = getattr(mmcache, name)
    assert inspect.getdoc(thing)
    if inspect.isfunction(thing):
        return
    module = importlib.import_module(thing.__module__)
    assert module.__file__ is not None
    body = next(
        n for n in tree_of(Path(module.__file__)).body if isinstance(n, ast.ClassDef) and n.name == thing.__name__
    )
    bare = [owned for owned, node in public_definitions(body.body) if not ast.get_docstring(node)]  # type: ignore[arg-type]
    assert not bare, f"{name} has methods without a docstring: {bare}"


def test_no_file_does_two_things() -> None:
    sizes = {module_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    long = {name: size for name, size in sizes.items() if size > MOST_LINES}
    assert not long
    assert not [module_of(path) for path in FILES if BANNED_NAMES & set(path.stem.lower().split("_"))]


def test_no_package_exports_what_one_of_its_modules_hides() -> None:
    """`from package.one import two` beside a module `two`: who imports that module replaces what was exported."""
    for init in (path for path in FILES if path.name == "__init__.py"):
        modules = {path.stem for path in init.parent.iterdir()}
        for node in tree_of(init).body:
            if isinstance(node, ast.ImportFrom) and node.module != module_of(init):
                names = {alias.asname or alias.name for alias in node.names} - {str(node.module).rsplit(".", 1)[-1]}
                assert not names & modules, f"{module_of(init)}: {names & modules}"


def test_only_the_settings_read_the_environment() -> None:
    readers = [
        module_of(path)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb")
    ]
    assert set(readers) <= {"mmcache.settings"}


def test_nothing_stored_can_be_executed() -> None:
    calls = [
        f"{module_of(path)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(tree_of(path))
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("eval", "exec", "compile")
        )
        or (isinstance(node, ast.Import) and {"pickle", "marshal", "shelve"} & {name.name for name in node.names})
        or (isinstance(node, ast.ImportFrom) and node.module in ("pickle", "marshal", "shelve"))
    ]
    assert not calls


@pytest.mark.parametrize("imported", ["mmcache", "mmcache.cache"])
def test_importing_the_library_stays_light(imported: str) -> None:
    probe = f"import sys, {imported}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout.split()
    assert found == []


def test_every_lab_table_and_plugin_is_a_real_file() -> None:
    from importlib.metadata import entry_points

    for kind in ("policies", "admission", "ttl", "refs", "codecs", "lab"):
        for point in entry_points(group=f"mmcache.{kind}"):
            assert importlib.util.find_spec(point.module) is not None, f"{point.name}: no module {point.module}"
