"""`telemetry`: spans and metrics of a cache, by OpenTelemetry's names.

>>> with instrument(cache, otlp="http://localhost:4318"):
...     with attributed(route="/search", region="eu-west"):
...         encode(picture)
"""

from mmcache.attribution import attributed
from mmcache.telemetry.exposition import render
from mmcache.telemetry.instrument import Telemetry, instrument

__all__ = ["Telemetry", "attributed", "instrument", "render"]
