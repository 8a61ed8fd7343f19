"""Watchers that learn: they train beside the cache, never in a request. Needs `pip install 'mmcache[learn]'`."""

from mmcache.learn.forecasting import Forecast, forecast
from mmcache.learn.lstm import LSTMTrainer

__all__ = ["Forecast", "LSTMTrainer", "forecast"]
