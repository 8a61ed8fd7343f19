"""Whatever nodes say of each other, true or not, `plan` has an answer, and the same one twice."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenes import Scene, id_of

from mmcache.scale.observed import SLOTS
from mmcache.scale.plan import plan_deletion
from mmcache.scale.steps import MoveSlots

FLAGS = ("fail", "fail?", "noaddr", "handshake")


def nonsense(draw: random.Random) -> Scene:
    scene = Scene(draw.randrange(1, 6), draw.randrange(3), slots=draw.random() < 0.8)
    ids = [node.id for node in scene.nodes.values()] + ["0" * 40, id_of("9-9"), ""]
    for name in list(scene.nodes):
        for _ in range(draw.randrange(3)):
            match draw.randrange(9):
                case 0:
                    scene.node(name, primary=draw.choice(ids), in_sync=draw.random() < 0.5)
                case 1:
                    scene.node(name, slots=frozenset(draw.sample(range(SLOTS), 50)), epoch=draw.randrange(9))
                case 2:
                    scene.node(name, importing={draw.randrange(SLOTS): draw.choice(ids)})
                case 3:
                    scene.node(name, migrating={draw.randrange(SLOTS): draw.choice(ids)})
                case 4:
                    scene.node(name, moving=draw.random() < 0.3, cluster_ok=draw.random() < 0.7, used_bytes=1 << 40)
                case 5:
                    scene.member(name, leaving=draw.random() < 0.4, ready=draw.random() < 0.6, current=False)
                case 6:
                    scene.views[name, draw.choice(ids)] = draw.choice(
                        [None, {"flags": frozenset(draw.sample(FLAGS, 2))}, {"epoch": 99, "primary": draw.choice(ids)}]
                    )
                case 7:
                    scene.strange(name)
                case 8:
                    scene.member(name, host=draw.choice(["", "elsewhere"]))
    for name in draw.sample(sorted(scene.nodes), draw.randrange(len(scene.nodes))):
        if draw.random() < 0.4:
            draw.choice([scene.silence, scene.remove, scene.anew])(name, *draw.sample(FLAGS[:3], draw.randrange(3)))
    return scene


@given(seed=st.integers(0, 2**32), wanted=st.integers(0, 7), replicas=st.integers(0, 3), allow=st.booleans())
@settings(max_examples=150, derandomize=True)
def test_there_is_always_an_answer(seed: int, wanted: int, replicas: int, allow: bool) -> None:
    scene = nonsense(random.Random(seed))
    decided = scene.plan(wanted, replicas=replicas, allow_eviction=allow)
    assert decided == scene.plan(wanted, replicas=replicas, allow_eviction=allow)
    assert decided.reason.isalnum()
    assert decided.message
    if isinstance(decided.step, MoveSlots):
        assert set(decided.step.slots) <= scene.nodes[decided.step.source].slots
    assert plan_deletion(scene.seen()).message
