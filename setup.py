"""Only the optional C extensions; everything else is in pyproject.toml."""

import sys

from setuptools import Extension, setup

# No contraction: a fused multiply-add, which ARM has and plain x86-64 has not, could round to other bits.
FLAGS = [] if sys.platform == "win32" else ["-O3", "-fno-math-errno", "-ffp-contract=off"]
SOURCES = {
    "mmcache.codecs._kernels": "src/mmcache/codecs/_kernels.c",
    "mmcache.near._near": "src/mmcache/near/_near.c",
    "mmcache.policies._auto": "src/mmcache/policies/_auto.c",
    "mmcache.tiers._hit_index": "src/mmcache/tiers/_hit_index.c",
}

setup(
    ext_modules=[Extension(name, [source], extra_compile_args=FLAGS, optional=True) for name, source in SOURCES.items()]
)
