"""Table `qos`: its loads repeat, every lookup is counted, and what its rows say. Nothing is encoded."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from mmcache import Cache
from mmcache.lab.qos_load import BATCH, CRITICAL, KNOWN, Load, Models, Round, Served, above_quota, draw, payment, run
from mmcache.lab.table_qos import QUOTA, rows, under_pressure
from mmcache.settings import Tenant

MODELS = Models(lambda text: np.zeros(384, np.float32), lambda page: np.zeros((4, 4), np.float32))


def test_a_load_repeats_and_has_known_and_new_payments() -> None:
    one, two, other = draw(1, 20.0), draw(1, 20.0), draw(2, 20.0)
    assert one == two
    assert one != other
    known = {payment(n) for n in range(KNOWN)}
    new = [text for text in one.lookups if text not in known]
    assert len(new) == len(set(new)) == pytest.approx(0.1 * len(one.lookups), rel=0.5)
    assert not set(new) & set(other.lookups), "new in every round"
    assert list(one.arrivals) == sorted(one.arrivals)
    again = len(one.pages) - len(set(one.pages))
    assert again == pytest.approx(len(one.pages) / 3, rel=0.1)


def test_every_lookup_is_counted_and_every_second_one_hits() -> None:
    load = Load((0.0,) * 20, tuple(payment(n // 2) for n in range(20)), tuple(range(50)))
    with Cache(memory="8MiB") as cache:
        found = run(cache, load, MODELS, exporting=False)
    assert len(found.critical.seconds) == len(found.critical.hits) == 20
    assert sum(found.critical.hits) >= 10
    assert found.batch.seconds == []
    assert found.stored[CRITICAL][0] == 10
    assert found.stored[BATCH] == (0, 0)


def test_what_a_lookup_raises_ends_the_run() -> None:
    def fail(text: str) -> None:
        raise LookupError("no such model")

    with Cache(memory="8MiB") as cache, pytest.raises(LookupError):
        run(cache, Load((0.0,), ("text",), ()), Models(fail, MODELS.page), exporting=True)


def test_quotas_are_kept_to_the_byte() -> None:
    with Cache(memory=2 * QUOTA, tenants={"small": Tenant("normal", quota=QUOTA)}) as cache:
        above, used = above_quota(cache, QUOTA, "small", 60, 0)
    assert above <= 0
    assert 0.9 < used <= 1.0


def a_round(milliseconds: float, hits: float, batch: int = 0) -> Round:
    critical = Served([milliseconds / 1e3] * 100, [n < hits for n in range(100)])
    return Round(critical, Served([0.1] * batch, [False] * batch), 2.0, {CRITICAL: (98, 2), BATCH: (1, 3)})


def test_rows_compare_with_the_tenant_alone() -> None:
    rounds = {
        "alone": [a_round(10, 90), a_round(10, 90)],
        "apart": [a_round(10.2, 90), a_round(10.2, 90)],
        "qos": [a_round(10.5, 89, 40), a_round(10.5, 90, 40)],
        "not-nice": [a_round(20, 90, 40), a_round(20, 90, 40)],
        "open": [a_round(40, 50, 60), a_round(40, 50, 60)],
    }
    found = {row.id: row for row in rows(rounds)}
    assert found["critical/qos/rise"].ours == pytest.approx(5.0)
    assert found["critical/qos/rise"].met
    assert found["critical/apart/rise"].ours == pytest.approx(2.0)
    assert found["critical/qos/rise-over-apart"].ours == pytest.approx(100 * (10.5 / 10.2 - 1))
    assert found["critical/qos/rise-95-high"].ours == pytest.approx(5.0)
    assert found["critical/open/rise"].ours == pytest.approx(300.0)
    assert found["critical/qos/hit-lost"].ours == pytest.approx(0.5)
    assert found["critical/open/hit-lost"].ours == pytest.approx(40.0)
    assert found["critical/qos/p99"].ours == pytest.approx(10.5)
    assert found["batch/qos/pages"].ours == pytest.approx(20.0)
    assert found["critical/qos/admitted"].ours == pytest.approx(98.0)
    assert found["batch/qos/admitted"].ours == pytest.approx(25.0)


def test_under_pressure_classes_keep_the_critical_hits() -> None:
    found = {row.id: row for row in under_pressure(12.0, [0])}
    assert found["memory/critical/qos/hit-lost"].met
    lost = found["memory/critical/open/hit-lost"].ours
    assert lost is not None
    assert lost > 5.0
    assert found["memory/critical/qos/admitted"].ours == 100.0


def test_overtakings_are_counted_from_arrival() -> None:
    from mmcache.lab import qos_load

    found, share = qos_load.overtaken(lambda tenant: nullcontext(), lambda: None, 0.0)
    assert all(count >= 0 for count in found)
    assert 0.0 <= share <= 1.0
