"""What is in the key, when the cache steps aside, and that the tower stays what it was."""

from __future__ import annotations

import copy
import io
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.integrations import transformers_world as towers
from tests.unit.integrations.transformers_world import torch, transformers

from mmcache import Cache
from mmcache.integrations.transformers import cache_vision_tower
from mmcache.integrations.transformers.aside import REASONS
from mmcache.model.errors import SettingsError, UnversionedModelError
from mmcache.model.event import Failed


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache(memory="64MiB") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def run(tower: Any, pictures: Any, **more: Any) -> Any:
    with torch.no_grad():
        return tower(pictures, **more).last_hidden_state


# What is in the key -----------------------------------------------------------------------------------------------


def test_another_picture_dtype_argument_or_switch_is_another_block(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(1)
    with cache_vision_tower(tower, cache, guard=False) as handle:
        calls: list[Callable[[], Any]] = [
            lambda: run(tower, pictures),
            lambda: run(tower, pictures + 1e-7),
            lambda: run(tower, pictures.double()),
            lambda: run(tower, pictures, interpolate_pos_encoding=True),
            lambda: run(tower, pictures, output_hidden_states=True),
            lambda: run(tower, pictures, output_hidden_states=[1]),
        ]
        for number, call in enumerate(calls, 1):
            call()
            call()
            assert handle.stats().computed == number
        with torch.autocast("cpu", torch.bfloat16):
            run(tower, pictures)
            run(tower, pictures)
        assert handle.stats().computed == 7
        tower.set_attn_implementation("eager")
        run(tower, pictures)
        assert handle.stats().computed == 8
        was = torch.get_float32_matmul_precision()
        try:
            torch.set_float32_matmul_precision("high" if was != "high" else "highest")
            run(tower, pictures)
        finally:
            torch.set_float32_matmul_precision(was)
        assert handle.stats().computed == 9
        assert handle.stats().aside == {}


def test_two_models_of_one_class_never_share(cache: Cache) -> None:
    one, other, pictures = towers.clip(0), towers.clip(1), towers.pictures(2)
    plain = run(other, pictures)
    with cache_vision_tower(one, cache, guard=False), cache_vision_tower(other, cache, guard=False) as handle:
        run(one, pictures)
        assert torch.equal(run(other, pictures), plain)
        assert handle.stats().computed == 2


def test_equal_weights_do_share(cache: Cache) -> None:
    one, other, pictures = towers.clip(), towers.clip(), towers.pictures(2)
    with cache_vision_tower(one, cache, guard=False), cache_vision_tower(other, cache, guard=False) as handle:
        plain = run(one, pictures)
        assert torch.equal(run(other, pictures), plain)
        assert handle.stats().computed == 0


def test_tenants_never_share_and_may_be_named_by_the_call(cache: Cache) -> None:
    tower, pictures, now = towers.clip(), towers.pictures(1), ["acme"]
    with cache_vision_tower(tower, cache, tenant=lambda: now[0], guard=False) as handle:
        run(tower, pictures)
        now[0] = "other"
        run(tower, pictures)
        assert handle.stats().computed == 2
        now[0] = ""
        run(tower, pictures)
        now.clear()
        run(tower, pictures)
        assert handle.stats().aside == {"tenant": 2}


def _load(tower: Any) -> None:
    tower.load_state_dict(towers.clip(5).state_dict())


def _data(tower: Any) -> None:
    tower.encoder.layers[1].mlp.fc1.weight.data.mul_(1.5)


def _exchanged_data(tower: Any) -> None:
    tower.encoder.layers[0].mlp.fc1.bias.data = torch.ones(48)


def _step(tower: Any) -> None:
    optimiser = torch.optim.SGD(tower.parameters(), lr=1.0)
    tower(towers.pictures(1)).last_hidden_state.sum().backward()
    optimiser.step()
    tower.zero_grad()


def _module(tower: Any) -> None:
    tower.encoder.layers[0].mlp = copy.deepcopy(towers.clip(5).encoder.layers[0].mlp)


def _numpy(tower: Any) -> None:
    tower.embeddings.class_embedding.detach().numpy()[:] = 0.25


def _config(tower: Any) -> None:
    tower.config.layer_norm_eps = 0.5
    tower.post_layernorm.eps = 0.5


def _attribute(tower: Any) -> None:
    tower.encoder.layers[0].layer_norm1.eps = 0.5


@pytest.mark.parametrize("change", [_load, _data, _exchanged_data, _step, _module, _numpy, _config, _attribute])
def test_changed_weights_are_noticed(change: Callable[[Any], None], cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(2)
    with cache_vision_tower(tower, cache, guard=False) as handle:
        before, signed = run(tower, pictures), handle.signature
        change(tower)
        fresh = run(tower, pictures)
        assert handle.signature != signed
        handle.remove()
        assert torch.equal(run(tower, pictures), fresh)
        assert not torch.equal(fresh, before) or change is _config


def test_weights_that_come_back_find_their_blocks(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(2)
    kept = copy.deepcopy(tower.state_dict())
    with cache_vision_tower(tower, cache, guard=False) as handle:
        run(tower, pictures)
        _load(tower)
        run(tower, pictures)
        tower.load_state_dict(kept)
        run(tower, pictures)
        assert handle.stats().computed == 4


def test_a_signature_that_was_given_does_not_outlive_its_weights(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(1)
    with cache_vision_tower(tower, cache, signature="clip 1", guard=False) as handle:
        run(tower, pictures)
        _load(tower)
        run(tower, pictures)
        assert handle.stats().aside == {"weights": 1}
        with pytest.raises(UnversionedModelError):
            handle.refresh()
        handle.refresh("clip 2")
        run(tower, pictures)
        assert handle.stats().computed == 2


def test_an_adapter_switched_off_is_another_model(cache: Cache) -> None:
    """An adapter as PEFT makes them: one attribute decides whether it counts."""

    class Adapted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base, self.lora_A, self._disable_adapters = base, torch.nn.Linear(32, 48, bias=False), False

        def forward(self, hidden: Any) -> Any:
            return self.base(hidden) + (0 if self._disable_adapters else self.lora_A(hidden))

    tower, pictures = towers.clip(), towers.pictures(1)
    plain = run(tower, pictures)
    with cache_vision_tower(tower, cache, guard=False) as handle:
        run(tower, pictures)
        layer = tower.encoder.layers[0].mlp.fc1 = Adapted(tower.encoder.layers[0].mlp.fc1).eval()
        adapted = run(tower, pictures)
        assert handle.signature.lora
        layer._disable_adapters = True
        assert torch.equal(run(tower, pictures), plain)
        layer._disable_adapters = False
        assert torch.equal(run(tower, pictures), adapted)
        assert handle.stats().computed == 3


def test_weights_that_cannot_be_read_need_a_version(cache: Cache) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tower = torch.ao.quantization.quantize_dynamic(towers.clip(), {torch.nn.Linear}).eval()
    with pytest.raises(UnversionedModelError, match="signature="):
        cache_vision_tower(tower, cache)
    with cache_vision_tower(tower, cache, signature="clip int8 1", guard=False) as handle:
        plain = run(tower, towers.pictures(2))
        assert torch.equal(run(tower, towers.pictures(2)), plain)
        assert handle.stats().computed == 2


# When it steps aside ----------------------------------------------------------------------------------------------


def test_training_gradients_hooks_and_unknown_arguments_go_past(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(2)
    with cache_vision_tower(tower, cache, guard=False) as handle:
        assert tower(pictures).last_hidden_state.requires_grad
        with torch.no_grad():
            tower.encoder.layers[0].train()
            tower(pictures)
            tower.eval()
            tower(pictures, something=torch.ones(2))
            tower(pictures, something=object())
            tower(pictures.to_sparse().to_dense()[:, 0:1].expand(2, 3, 32, 32))  # a view is read like its copy
            seen: list[int] = []
            hook = tower.encoder.layers[1].register_forward_hook(lambda *a: seen.append(1))
            tower(pictures)
            tower(pictures)
            hook.remove()
        assert handle.stats().aside == {"grad": 1, "training": 1, "argument": 2, "hooks": 2}
        assert len(seen) == 2
        tower.requires_grad_(False)
        tower(pictures)  # frozen: no gradient can be wanted
        assert handle.stats().computed == 4
    said = [event for event in cache.events.recent() if isinstance(event, Failed)]
    assert len(said) == 4, "each reason is said once"
    assert {event.detail.split(": ", 1)[1] for event in said} <= set(REASONS.values())


def test_what_the_tower_raises_reaches_the_caller_and_is_not_stored(cache: Cache) -> None:
    tower = towers.clip()
    with cache_vision_tower(tower, cache, guard=False):
        for _ in range(2):
            with pytest.raises(ValueError, match="image size"):
                run(tower, towers.pictures(1, side=40))
        with pytest.raises(TypeError):
            tower(towers.pictures(1), towers.pictures(1), towers.pictures(1))


def test_a_broken_cache_breaks_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    tower, pictures = towers.clip(), towers.pictures(2)
    plain = run(tower, pictures)
    cache = Cache(memory="64MiB")
    with cache_vision_tower(tower, cache, guard=False) as handle:
        run(tower, pictures[:1])

        def boom(*_: Any, **__: Any) -> Any:
            raise RuntimeError("boom")

        monkeypatch.setattr(cache.answers, "answer_many", boom)
        assert torch.equal(run(tower, pictures), plain)
        cache.close()
        monkeypatch.undo()
        assert torch.equal(run(tower, pictures), plain)
        assert handle.stats().aside == {"cache": 2}


def test_weights_written_while_computing_are_not_stored(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(1)
    with cache_vision_tower(tower, cache, guard=False) as handle:
        hook = tower.register_forward_pre_hook(lambda *_: None)  # the tower's own hooks run around the cache
        cls: Any = type(tower).__mro__[1]
        plain = cls.forward

        def meanwhile(self: Any, *args: Any, **kwargs: Any) -> Any:
            _data(tower)
            return plain(self, *args, **kwargs)

        handle._own = lambda *args, **kwargs: meanwhile(tower, *args, **kwargs)
        run(tower, pictures)
        assert handle.stats().aside == {"racing": 1}
        handle._own = None
        run(tower, pictures)
        hook.remove()
        assert handle.stats().computed == 1


def test_the_kill_switch_and_shadow_mode(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(2)
    with cache_vision_tower(tower, cache, guard=False) as handle:
        plain = run(tower, pictures)
        cache.switch("off")
        assert torch.equal(run(tower, pictures), plain)
        assert handle.stats().aside == {"off": 1}
        cache.switch("shadow")
        assert torch.equal(run(tower, pictures), plain)
        assert handle.stats().computed == 4
        assert cache.stats().differed == 0


def test_the_guard_steps_aside_where_a_tower_is_quicker_than_a_lookup(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(1)
    with cache_vision_tower(tower, cache) as handle:
        assert handle._guard is not None
        handle._guard.window, handle._guard.pause = 2, 3
        run(tower, pictures)
        handle._seconds = 1e-9
        run(tower, pictures)
        run(tower, pictures)
        run(tower, pictures)
        assert handle.stats().aside["guard"] >= 1


# That the tower stays what it was ---------------------------------------------------------------------------------


def test_removing_leaves_nothing_behind(cache: Cache) -> None:
    tower = towers.clip()
    cls, before = type(tower), set(vars(tower))
    handle = cache_vision_tower(tower, cache)
    assert isinstance(tower, cls)
    assert (type(tower).__name__, type(tower).__module__) == (cls.__name__, cls.__module__)
    assert str(type(tower)) == str(cls)
    handle.remove()
    handle.remove()
    assert type(tower) is cls
    assert set(vars(tower)) == before
    with cache_vision_tower(tower, cache):
        pass


def test_copies_and_files_are_of_the_plain_class(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(1)
    cls = type(tower)
    with cache_vision_tower(tower, cache, guard=False) as handle:
        twin = copy.deepcopy(tower)
        assert type(twin) is cls
        _load(twin)
        plain = run(tower, pictures)
        assert not torch.equal(run(twin, pictures), plain), "a copy has weights of its own"
        written = io.BytesIO()
        torch.save(tower, written)
        written.seek(0)
        read = torch.load(written, weights_only=False)
        assert type(read) is cls
        assert torch.equal(run(read, pictures), plain)
        assert handle.stats().pictures == 1


def test_hits_are_the_callers_own(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(2)
    with cache_vision_tower(tower, cache, guard=False):
        plain = run(tower, pictures).clone()
        for _ in range(3):
            found = run(tower, pictures)
            assert torch.equal(found, plain)
            found.fill_(0)


def test_exact_gives_a_picture_one_output_whatever_it_comes_with(cache: Cache) -> None:
    tower, pictures = towers.made("SiglipVisionModel", towers.STACKED["SiglipVisionModel"]()), towers.pictures(5)
    alone = torch.cat([run(tower, pictures[i : i + 1]) for i in range(5)])
    with cache_vision_tower(tower, cache, equal="exact", guard=False) as handle:
        assert torch.equal(run(tower, pictures[1:4]), alone[1:4])
        assert torch.equal(run(tower, pictures), alone)
        assert handle.stats().computed == 5
    with pytest.raises(SettingsError):
        cache_vision_tower(tower, cache, equal="nearly")  # type: ignore[arg-type]


def test_at_rest_in_half_or_in_four_bits(cache: Cache) -> None:
    tower = towers.made("CLIPVisionModel", transformers.CLIPVisionConfig(**towers.SMALL | {"image_size": 64}))
    pictures = towers.pictures(3, side=64)
    plain = run(tower, pictures)
    for at_rest, bound in (("fp16", 2e-3), ("int4:group=16", 0.5)):
        with cache_vision_tower(tower, cache, at_rest=at_rest, guard=False) as handle:
            first, again = run(tower, pictures), run(tower, pictures)
            assert torch.equal(first, again), "a caller gets what hits will get"
            assert first.dtype == plain.dtype
            assert 0 < float((first - plain).abs().max()) < bound
            assert handle.stats().computed == 3
    with cache_vision_tower(tower, cache, guard=False) as handle:
        assert torch.equal(run(tower, pictures), plain), "a lossless reader never gets a lossy block"


def test_what_encrypts_cannot_be_turned_off_here() -> None:
    pytest.importorskip("cryptography")
    from mmcache.codecs.aesgcm import AESGCM
    from mmcache.codecs.chain import Chain

    sealed = Cache(memory="64MiB", codec=Chain(AESGCM(key=bytes(32))))
    with sealed, pytest.raises(SettingsError, match="encryption"):
        cache_vision_tower(towers.clip(), sealed, at_rest="fp16")


def test_threads_compute_a_picture_once(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(6)
    plain = run(tower, pictures)
    found: list[Any] = [None] * 8
    with cache_vision_tower(tower, cache, guard=False) as handle:

        def work(place: int) -> None:
            found[place] = run(tower, torch.roll(pictures, place, 0))

        threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert handle.stats().computed == 6
    for place, got in enumerate(found):
        assert float((got - torch.roll(plain, place, 0)).abs().max()) < 1e-5


def test_inference_tensors_and_other_dtypes(cache: Cache) -> None:
    with torch.inference_mode():
        tower = towers.clip().to(torch.bfloat16)
        pictures = towers.pictures(2).to(torch.bfloat16)
        plain = run(tower, pictures)
        with cache_vision_tower(tower, cache, guard=False) as handle:
            for _ in range(2):
                found = run(tower, pictures)
                assert found.dtype == torch.bfloat16
                assert torch.equal(found, plain)
            assert handle.stats().computed == 2


def test_tuples_come_back_as_tuples(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(2)
    with torch.no_grad():
        plain = tower(pictures, return_dict=False)
        with cache_vision_tower(tower, cache, guard=False):
            for _ in range(2):
                found = tower(pictures, return_dict=False)
                assert type(found) is tuple
                assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))


def test_a_forward_of_the_instance_is_kept(cache: Cache) -> None:
    """What accelerate does to models that lie on several devices."""
    tower, pictures, calls = towers.clip(), towers.pictures(1), []
    plain = tower.forward

    def placed(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return plain(*args, **kwargs)

    tower.forward = placed
    with cache_vision_tower(tower, cache, guard=False):
        run(tower, pictures)
        run(tower, pictures)
        assert len(calls) == 1
    assert tower.forward is placed


def test_tracers_see_the_plain_tower(cache: Cache) -> None:
    tower, pictures = towers.clip(), towers.pictures(1)
    with cache_vision_tower(tower, cache, guard=False) as handle, torch.no_grad():
        plain = tower(pictures).last_hidden_state
        exported = torch.export.export(tower, (pictures,))
        found = exported.module()(pictures)
        assert float((found.last_hidden_state - plain).abs().max()) < 1e-5
        assert handle.stats().pictures == 1


def test_models_can_be_freed(cache: Cache) -> None:
    import gc
    import weakref

    tower = towers.clip()
    handle = cache_vision_tower(tower, cache)
    gone = weakref.ref(tower)
    run(tower, towers.pictures(1))
    del tower
    gc.collect()
    assert gone() is None
    handle.remove()


def test_transformers_is_the_one_that_was_looked_at() -> None:
    assert int(transformers.__version__.split(".")[0]) >= 5
