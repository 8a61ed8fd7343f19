"""Where the sandbox has no `pidfd_open` nothing can be looked into at all."""

from __future__ import annotations

import os
import sys

import pytest


@pytest.fixture(autouse=True)
def _a_process_can_be_held() -> None:
    if sys.platform != "linux":
        return
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        pytest.skip(f"this kernel or its sandbox has no pidfd_open(): {error}")
