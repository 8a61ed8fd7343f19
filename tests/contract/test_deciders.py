"""Every built-in admission, lifetime and reference graph keeps its contract."""

from __future__ import annotations

from mmcache import plugins
from mmcache.admission.base import Admission
from mmcache.admission.size import Always, LargestShare
from mmcache.refs.base import References
from mmcache.refs.counted import CountedReferences
from mmcache.testing import AdmissionContract, LifetimeContract, ReferencesContract
from mmcache.ttl.base import Lifetime
from mmcache.ttl.fixed import FixedTTL


class TestAlways(AdmissionContract):
    def make_admission(self) -> Admission:
        return Always()


class TestLargestShare(AdmissionContract):
    def make_admission(self) -> Admission:
        return LargestShare()


class TestForEver(LifetimeContract):
    def make_lifetime(self) -> Lifetime:
        return FixedTTL()


class TestFixedTTL(LifetimeContract):
    def make_lifetime(self) -> Lifetime:
        return FixedTTL(60, jitter=0.2)


class TestNoTimeAtAll(LifetimeContract):
    def make_lifetime(self) -> Lifetime:
        return FixedTTL(0)


class TestCountedReferences(ReferencesContract):
    def make_references(self) -> References:
        return CountedReferences()


def test_every_registered_decider_is_here() -> None:
    tested = {Always, LargestShare, FixedTTL, CountedReferences}
    for kind in ("admission", "ttl", "refs"):
        assert {plugins.load(kind, name) for name in plugins.names(kind)} <= tested
