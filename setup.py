"""Only the optional C extension; everything else is in pyproject.toml."""

import sys

from setuptools import Extension, setup

flags = [] if sys.platform == "win32" else ["-O3", "-fno-math-errno"]
setup(
    ext_modules=[
        Extension("mmcache.codecs._kernels", ["src/mmcache/codecs/_kernels.c"], extra_compile_args=flags, optional=True),
        Extension("mmcache.tiers._hit_index", ["src/mmcache/tiers/_hit_index.c"], extra_compile_args=flags, optional=True),
    ]
)
