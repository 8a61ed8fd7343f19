"""A tower that was changed in ways which touch no weight: its code, its attention, what its attributes hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.integrations import transformers_world as towers
from tests.unit.integrations.transformers_world import torch

from mmcache import Cache
from mmcache.integrations.transformers import Stacked, cache_vision_tower


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache(memory="64MiB") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def run(tower: Any, pictures: Any) -> Any:
    with torch.no_grad():
        return tower(pictures).last_hidden_state


def test_patched_code_is_another_tower(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """As kernels of other packages do: the `forward` of a class is replaced, for all its instances."""
    tower, pictures = towers.clip(), towers.pictures(2)
    layer: Any = type(tower.encoder.layers[0].mlp)
    plain = layer.forward
    with cache_vision_tower(tower, cache, guard=False) as handle:
        first = run(tower, pictures)
        for scale in (2.0, 3.0):

            def patched(self: Any, hidden: Any, scale: float = scale) -> Any:
                return plain(self, hidden) * scale

            patched.__wrapped__ = plain  # type: ignore[attr-defined]
            monkeypatch.setattr(layer, "forward", patched)
            found = run(tower, pictures)
            handle.remove()
            assert torch.equal(run(tower, pictures), found)
            handle = cache_vision_tower(tower, cache, guard=False)
            assert torch.equal(run(tower, pictures), found)
            assert handle.stats().computed == 0
        monkeypatch.setattr(layer, "forward", plain)
        assert torch.equal(run(tower, pictures), first)
        assert handle.stats().computed == 0, "the code that came back finds its blocks"
        handle.remove()


def test_a_patched_forward_of_the_tower_itself_runs(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    tower, pictures = towers.clip(), towers.pictures(1)
    cls: Any = type(tower)
    with cache_vision_tower(tower, cache, guard=False):
        before = run(tower, pictures)
        plain = cls.forward

        def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
            output = plain(self, *args, **kwargs)
            output.last_hidden_state = output.last_hidden_state + 1
            return output

        monkeypatch.setattr(cls, "forward", patched)
        assert torch.equal(run(tower, pictures), before + 1)


def test_a_module_of_another_class_is_another_tower(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(1)
    with cache_vision_tower(tower, cache, guard=False):
        before = run(tower, pictures)
        part = tower.encoder.layers[0].mlp
        part.__class__ = type("CLIPMLP", (type(part),), {"forward": lambda self, hidden: hidden * 3})
        assert not torch.equal(run(tower, pictures), before)


def test_attention_registered_anew_under_one_name_is_another(cache: Cache) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    tower, pictures = towers.clip(), towers.pictures(1)
    plain = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def other(*args: Any, **kwargs: Any) -> Any:
        output, weights = plain(*args, **kwargs)
        return output * 3, weights

    with cache_vision_tower(tower, cache, guard=False) as handle:
        before = run(tower, pictures)
        ALL_ATTENTION_FUNCTIONS["sdpa"] = other
        try:
            assert not torch.equal(run(tower, pictures), before)
        finally:
            del ALL_ATTENTION_FUNCTIONS["sdpa"]
        assert torch.equal(run(tower, pictures), before)
        assert handle.stats().computed == 2


class Mine(torch.nn.Module):  # type: ignore[misc]
    """What people put into attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 8, 16, 16)
        self.options, self.scales, self.shift, self._private = {"by": 1.0}, [1.0], torch.zeros(1), 1.0
        self.unseen = [torch.nn.Linear(2, 2)]
        self.function: Callable[[Any], Any] = torch.sin

    def forward(self, pixel_values: Any) -> Any:
        found = self.function(self.layer(pixel_values).flatten(2).transpose(1, 2)) * self.options["by"]
        return self.unseen[0](found[..., :2]) * self.scales[0] + self.shift * self._private


def _weight(tower: Mine) -> None:
    with torch.no_grad():
        tower.unseen[0].weight.mul_(2)


@pytest.mark.parametrize(
    "change",
    [
        lambda tower: tower.options.update(by=2.0),
        lambda tower: setattr(tower, "options", {"by": 2.0}),
        lambda tower: tower.scales.__setitem__(0, 2.0),
        lambda tower: tower.shift.add_(1),
        lambda tower: setattr(tower, "shift", torch.ones(1)),
        lambda tower: setattr(tower, "function", torch.cos),
        _weight,
    ],
)
def test_what_attributes_hold_is_watched(change: Callable[[Mine], None], cache: Cache) -> None:
    tower, pictures = Mine().eval(), towers.pictures(2)
    with torch.no_grad(), cache_vision_tower(tower, cache, guard=False, layout=Stacked()) as handle:
        before = tower(pictures)
        assert torch.equal(tower(pictures), before)
        assert handle.stats().computed == 2
        change(tower)
        found = tower(pictures)
        assert not torch.equal(found, before)
        assert torch.equal(found, Mine.forward(tower, pictures))


def test_the_watch_keeps_no_tower_alive(cache: Cache) -> None:
    import gc
    import weakref

    tower = Mine().eval()
    tower.unseen.append(tower)  # in a list, where torch does not see it
    cache_vision_tower(tower, cache, layout=Stacked(), signature="mine 1")
    gone = weakref.ref(tower)
    del tower
    gc.collect()
    assert gone() is None
