"""Ctrl-C before a command has begun: most of that time goes into imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROBE = """
import sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
from mmcache.cli import main
sys.exit(main(["--version"]))
"""


@pytest.mark.parametrize("module", ["mmcache.cli.app", "cyclopts", "mmcache.cli.cluster", "mmcache.model.errors"])
def test_ctrl_c_while_it_imports_is_one_line_and_130(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, module], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mmcache: interrupted\n")
