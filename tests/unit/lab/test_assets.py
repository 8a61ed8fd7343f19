"""Pinned files: found without importing, compared with their pins."""

import hashlib
import sys
from pathlib import Path

import pytest

from mmcache.lab.assets import Asset, folder, runtime
from mmcache.model.errors import AssetError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose import would fail, with one file."""
    place = tmp_path / "weights_of_a_test"
    place.mkdir()
    (place / "__init__.py").write_text("raise SystemError('imported')")
    (place / "model.bin").write_bytes(b"weights")
    monkeypatch.syspath_prepend(str(tmp_path))
    return place


def asset(content: bytes = b"weights", file: str = "model.bin") -> Asset:
    return Asset("weights_of_a_test", file, hashlib.sha256(content).hexdigest())


def test_is_read_without_importing_the_package(package: Path) -> None:
    assert asset().read() == b"weights"
    assert asset().verified() == package / "model.bin"
    assert "weights_of_a_test" not in sys.modules


@pytest.mark.usefixtures("package")
def test_other_content_is_refused() -> None:
    with pytest.raises(AssetError, match="SHA-256"):
        asset(b"other").read()
    with pytest.raises(AssetError, match="SHA-256"):
        asset(b"other").verified()


@pytest.mark.usefixtures("package")
def test_missing_file_and_package_say_what_to_install() -> None:
    with pytest.raises(AssetError, match="demo-assets"):
        asset(file="gone.bin").read()
    with pytest.raises(AssetError, match="demo-assets"):
        folder("no_such_package_here")
    with pytest.raises(AssetError, match="pip install"):
        runtime("no-such-distribution-here")
