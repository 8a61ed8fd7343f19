"""The built-in calibration keeps the contract."""

from __future__ import annotations

from mmcache.calibration.base import Calibration
from mmcache.calibration.calibrated import Calibrated
from mmcache.testing import CalibrationContract


class TestCalibrated(CalibrationContract):
    def make_calibration(self) -> Calibration:
        return Calibrated(max_error=0.05, neighbourhoods=2000)


class TestStrict(CalibrationContract):
    def make_calibration(self) -> Calibration:
        return Calibrated(max_error=0.02, confidence=0.99, check_share=0.1, own_evidence=2, neighbourhoods=500)
