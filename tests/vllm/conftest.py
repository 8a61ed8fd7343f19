"""vLLM is imported here beside a torch for CPUs, as its engines do in their own processes."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("vllm") is not None:
    from mmcache.lab.engines.startup import sitecustomize as sitecustomize
