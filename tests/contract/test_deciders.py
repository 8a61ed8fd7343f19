"""Every built-in admission, lifetime and reference graph keeps its contract."""

from __future__ import annotations

from mmcache import plugins
from mmcache.admission.base import Admission
from mmcache.admission.qos import QoS
from mmcache.admission.size import Always, LargestShare
from mmcache.refs.base import References
from mmcache.refs.counted import CountedReferences
from mmcache.refs.soft import SoftReferences
from mmcache.refs.versioned import VersionedReferences
from mmcache.testing import AdmissionContract, LifetimeContract, ReferencesContract
from mmcache.ttl.base import Lifetime
from mmcache.ttl.fixed import FixedTTL
from mmcache.ttl.survival import SurvivalTTL


class TestAlways(AdmissionContract):
    def make_admission(self) -> Admission:
        return Always()


class TestLargestShare(AdmissionContract):
    def make_admission(self) -> Admission:
        return LargestShare()


class TestQoS(AdmissionContract):
    def make_admission(self) -> Admission:
        return QoS()


class TestForEver(LifetimeContract):
    def make_lifetime(self) -> Lifetime:
        return FixedTTL()


class TestFixedTTL(LifetimeContract):
    def make_lifetime(self) -> Lifetime:
        return FixedTTL(60, jitter=0.2)


class TestSurvivalTTL(LifetimeContract):
    def make_lifetime(self) -> Lifetime:
        return SurvivalTTL(max_seconds=600)


class TestNoTimeAtAll(LifetimeContract):
    def make_lifetime(self) -> Lifetime:
        return FixedTTL(0)


class TestCountedReferences(ReferencesContract):
    def make_references(self) -> References:
        return CountedReferences()


class TestVersionedReferences(ReferencesContract):
    def make_references(self) -> References:
        return VersionedReferences()


class TestSoftReferences(ReferencesContract):
    strong = False

    def make_references(self) -> References:
        return SoftReferences()


def test_every_registered_decider_is_here() -> None:
    tested = {Always, LargestShare, QoS, FixedTTL, SurvivalTTL, CountedReferences, VersionedReferences, SoftReferences}
    for kind in ("admission", "ttl", "refs"):
        assert {plugins.load(kind, name) for name in plugins.names(kind)} <= tested
