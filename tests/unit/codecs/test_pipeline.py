"""freeze and thaw: what comes back, how it is laid out, and what callers cannot break."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import pytest

from mmcache.codecs.aesgcm import AESGCM
from mmcache.codecs.chain import Chain
from mmcache.codecs.fp16 import FP16
from mmcache.codecs.int4 import INT4
from mmcache.codecs.pipeline import Thawed, choose, freeze, thaw
from mmcache.codecs.raw import Raw
from mmcache.codecs.structure import Structures
from mmcache.codecs.zstd import Zstd
from mmcache.model.errors import CodecError, CorruptFrameError, UnknownPluginError, UnsupportedValueError
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.model.signature import Signature

KEY = Key(b"s" * 16, b"d" * 16)
Point = namedtuple("Point", "x y")


@dataclass
class Output:
    hidden: Any
    sizes: Any = None


class Features(OrderedDict[str, Any]):
    pass


class Colour(IntEnum):
    RED = 1


def fresh(value: object, chain: Chain | None = None, structures: Structures | None = None) -> Frame:
    return freeze(
        value, key=KEY, signature=Signature(model_version="m-1"), modality="image", tenant="t", namespace="n", cost=1.5,
        created=2.5, chain=chain, structures=structures,
    )  # fmt: skip


def frozen(value: object, chain: Chain | None = None, structures: Structures | None = None) -> Frame:
    return Frame.parse(fresh(value, chain, structures).to_bytes())


def back(value: object, chain: Chain | None = None, structures: Structures | None = None) -> Thawed:
    return thaw(frozen(value, chain, structures), structures)


def test_header_says_whose_it_is() -> None:
    header = frozen(1).header
    assert (header.key, header.signature) == (KEY, Signature(model_version="m-1").digest)
    assert (header.modality, header.tenant, header.namespace, header.model) == ("image", "t", "n", "m-1")
    assert (header.cost, header.created) == (1.5, 2.5)


def test_leaves_and_payload_are_aligned_and_gaps_are_zero() -> None:
    arrays = [np.full(n, 255, np.uint8) for n in (1, 0, 63, 64, 65, 1000)]
    frame = fresh(arrays)
    payload = np.frombuffer(frame.payload, np.uint8)
    assert payload.ctypes.data % 64 == 0
    assert all(leaf.offset % 64 == 0 for leaf in frame.header.leaves)
    assert payload.sum() == 255 * sum(len(array) for array in arrays)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=">f4").reshape(3, 4),
        np.arange(12).reshape(3, 4).T,
        np.arange(12)[::-2],
        np.asfortranarray(np.ones((3, 4), np.float16)),
        np.array(3.5),
        np.empty((0, 3)),
        np.empty((3, 0), np.int8),
        np.broadcast_to(np.float32(1), (4, 5)),
        np.array(["a", "çé"]),
        np.array([b"x", b"yz"]),
        np.array(["2020-01-01"], "M8[ns]"),
        np.array([True, False]),
        np.array([1 + 2j]),
    ],
)
def test_arrays_keep_dtype_byte_order_shape_and_values(array: Any) -> None:
    thawed = back(array)
    value: Any = thawed.value()
    assert (value.dtype, value.shape) == (array.dtype, array.shape)
    assert value.dtype.str == array.dtype.str
    assert value.tobytes() == array.tobytes()
    assert not thawed.constant


def test_arrays_are_read_only_for_good_and_alone() -> None:
    thawed = thaw(fresh(np.arange(12.0)))
    one: Any = thawed.value()
    with pytest.raises(ValueError, match="WRITEABLE"):
        one.flags.writeable = True
    with pytest.raises(ValueError, match="WRITEABLE"):
        one.base.flags.writeable = True
    with pytest.raises(ValueError, match="read-only"):
        one[0] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        one.shape = (3, 4)
        one.dtype = np.int64
        one.base.shape = (2, 6)
    again: Any = thawed.value()
    assert (again.shape, again.dtype) == ((12,), np.float64)


def test_frozen_values_do_not_follow_their_source() -> None:
    source = np.zeros(4)
    frame = frozen(source)
    source[0] = 1
    assert thaw(frame).value().sum() == 0  # type: ignore[attr-defined]


def test_a_writable_payload_is_still_read_only_to_callers() -> None:
    frame = Frame.parse(bytearray(frozen(np.zeros(4)).to_bytes()))
    value: Any = thaw(frame).value()
    with pytest.raises(ValueError, match="WRITEABLE"):
        value.flags.writeable = True


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(1 << 63), (1 << 64) - 1, 1.5, "", "é", "s" * 1000, "\ud800", b"", b"x" * 500, (), (1, (b"b", "")),
     np.float32(2.5), np.int8(-3), np.bool_(True)],
)  # fmt: skip
def test_immutable_values_are_constant(value: object) -> None:
    thawed = back(value)
    assert thawed.value() == value
    assert type(thawed.value()) is type(value)
    assert thawed.constant


@pytest.mark.parametrize("value", [[], {}, [1.5] * 50, list(range(50)), [True] * 50, {"a": [1, None], 2: ({},)}])
def test_containers_are_fresh_each_time(value: object) -> None:
    thawed = back(value)
    assert thawed.value() == value
    assert thawed.value() is not thawed.value()
    assert not thawed.constant


def test_dict_order_is_kept() -> None:
    assert list(back({"b": 1, "a": 2, 7: 3}).value()) == ["b", "a", 7]  # type: ignore[call-overload]


def test_declared_types_come_back_and_are_fresh() -> None:
    structures = Structures()
    for cls in (Point, Output, Features):
        structures.declare(cls)
    value = Output(Point(1, [2]), Features(grid=(1, 2)))
    thawed = back(value, structures=structures)
    assert thawed.value() == value
    assert thawed.value().hidden is not thawed.value().hidden  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [Point(1, 2), Output(1), Features(a=1), {"x": [Output(1)]}])
def test_undeclared_types_are_refused_with_advice(value: object) -> None:
    with pytest.raises(UnsupportedValueError, match=r"declare it|returns"):
        frozen(value)


def test_undeclared_at_thaw_and_changed_types_are_refused() -> None:
    structures = Structures()
    structures.declare(Output)
    frame = frozen(Output(1), structures=structures)
    with pytest.raises(UnsupportedValueError, match="not declared"):
        thaw(frame)
    other = Structures()
    changed = type("Output", (Point,), {"__module__": Output.__module__, "__qualname__": "Output"})
    other.declare(changed)
    with pytest.raises(UnsupportedValueError, match="fields"):
        thaw(frame, other)


def test_a_namesake_is_not_the_declared_type() -> None:
    structures = Structures()
    structures.declare(Output)
    namesake = type("Output", (Output,), {"__module__": Output.__module__, "__qualname__": "Output"})
    with pytest.raises(UnsupportedValueError):
        frozen(namesake(1), structures=structures)


def test_only_structures_can_be_declared() -> None:
    with pytest.raises(UnsupportedValueError, match="not a dataclass"):
        Structures().declare(int)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, 1 << 64, Colour.RED, {1.5: 1}, {"\n": 1}, {True: 1}, bytearray(b"x"), np.array([None]),
     np.ma.zeros(3), np.zeros(2, "i4,f4"), 1j, range(3), lambda: 1, np.bytes_(b"a\0"), np.str_("a\0")],
)  # fmt: skip
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(UnsupportedValueError, match="value"):
        frozen([value])


def test_endless_and_enormous_values_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UnsupportedValueError, match="deeply"):
        frozen(endless)
    with pytest.raises(UnsupportedValueError, match="many"):
        frozen([[]] * 200_000)
    with pytest.raises(UnsupportedValueError, match="many parts"):
        frozen([np.zeros(1)] * 20_000)


def test_lossy_steps_touch_only_what_they_fit() -> None:
    value = {
        "features": np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32),
        "ids": np.arange(2048).reshape(64, 32),
        "scale": np.float32(3.3),
        "vector": np.linspace(0, 1, 10, dtype=np.float32),
        "grid": [1.1] * 100,
        "name": "x",
    }
    frame = frozen(value, Chain(INT4()))
    assert [bool(leaf.chain) for leaf in frame.header.leaves] == [True, False, False, False, False]
    again: Any = thaw(frame).value()
    assert again["features"].tobytes() != np.asarray(value["features"]).tobytes()
    assert (again["vector"] == value["vector"]).all()
    assert (again["grid"], again["scale"]) == (value["grid"], value["scale"])
    with pytest.raises(ValueError, match="read-only"):
        again["features"][0] = 0


def test_what_a_codec_refuses_is_kept_raw_and_said(caplog: pytest.LogCaptureFixture) -> None:
    array = np.ones((64, 32), np.float32)
    array[3, 3] = np.nan
    with caplog.at_level("INFO", "mmcache.codecs"):
        frame = frozen(array, Chain(INT4()))
    assert frame.header.leaves[0].chain == ()
    assert "kept raw" in caplog.text
    value: Any = thaw(frame).value()
    assert value.tobytes() == array.tobytes()


def test_chains_check_their_steps() -> None:
    assert [c.name for c in Chain(Raw(), Zstd()).codecs] == ["zstd"]
    assert [c.name for c in Chain(FP16(), INT4(), Zstd()).codecs] == ["fp16", "int4", "zstd"]
    with pytest.raises(CodecError):
        Chain(INT4(), FP16())
    with pytest.raises(CodecError):
        Chain(Zstd(), INT4())


def test_labels_name_what_is_lossy() -> None:
    assert choose("image", "raw").lossy_label == choose("image", "zstd").lossy_label == ""
    assert choose("image", "int4:group=64+zstd").lossy_label == "int4:group=64"
    assert choose("audio", "auto").lossy_label == "fp16:scale=0.92"


def test_settings_choose_by_modality() -> None:
    assert choose("image", "auto-vision").lossy_label == "int4:group=64"
    assert choose("text", "auto-vision").lossy_label == ""
    assert choose("text", {"text": "fp16", "image": INT4()}).lossy_label == "fp16"
    assert choose("image", {"text": "fp16", "image": INT4()}).lossy_label == "int4"
    assert choose("video", {"text": "fp16"}).codecs == ()
    chain = Chain(INT4())
    assert choose("image", chain) is chain
    with pytest.raises(UnknownPluginError, match="int4"):
        choose("image", "int5")
    with pytest.raises(CodecError, match="colour"):
        choose("image", "int4:colour=3")


def test_zstd_is_left_out_where_it_does_not_help() -> None:
    noise = np.random.default_rng(0).bytes(1000)
    frame = frozen([b"a" * 1000, noise], choose("image", "zstd"))
    assert [[step.name for step in leaf.chain] for leaf in frame.header.leaves] == [["raw", "zstd"], []]
    assert thaw(frame).value() == [b"a" * 1000, noise]


class TestSealed:
    VALUE = {"secret word": "hunter2", "array": np.arange(100.0), "n": 5}  # noqa: RUF012

    def test_nothing_readable_is_left(self) -> None:
        raw = frozen(self.VALUE, Chain(AESGCM(b"k" * 32))).to_bytes()
        assert b"hunter2" not in raw
        assert b"secret word" not in raw
        assert np.arange(100.0).tobytes()[64:128] not in raw
        assert b"k" * 32 not in raw

    def test_comes_back(self) -> None:
        for chain in (Chain(AESGCM(b"k" * 32)), Chain(INT4(), Zstd(), AESGCM(b"k" * 16))):
            value: Any = back(self.VALUE, chain).value()
            assert value["secret word"] == "hunter2"
            assert (value["array"] == np.arange(100.0)).all()

    def test_two_encodings_differ(self) -> None:
        chain = Chain(AESGCM(b"k" * 32))
        assert frozen(b"x", chain).to_bytes() != frozen(b"x", chain).to_bytes()

    @pytest.mark.parametrize(
        "change", [{"tenant": "u"}, {"namespace": "o"}, {"key": b"x" * 48}, {"signature": b"z" * 16}]
    )
    def test_another_block_does_not_open_it(self, change: dict[str, Any]) -> None:
        frame = frozen(b"x" * 100, Chain(AESGCM(b"k" * 32)))
        moved = Frame.seal(msgspec.structs.replace(frame.header, **change), frame.payload)
        with pytest.raises(CodecError, match="open"):
            thaw(moved).value()

    def test_an_unknown_key_is_named_not_guessed(self) -> None:
        frame = frozen(b"x", Chain(AESGCM(b"k" * 32)))
        leaf = frame.header.leaves[0]
        raw, sealed = leaf.chain
        chain = (raw, msgspec.structs.replace(sealed, params={"key_id": "feed"}))
        header = msgspec.structs.replace(
            frame.header, leaves=tuple(msgspec.structs.replace(x, chain=chain) for x in frame.header.leaves)
        )
        with pytest.raises(CodecError, match="feed"):
            thaw(replace(frame, header=header))


class TestTorch:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def test_tensors_come_back_bit_exact(self) -> None:
        torch = self.torch
        noise = torch.randint(-(2**15), 2**15, (5, 7), dtype=torch.int16)
        tensors = [
            torch.arange(6.0).reshape(2, 3).T.requires_grad_(),
            noise.view(torch.bfloat16),
            noise.view(torch.uint8).view(torch.float8_e4m3fn),
            torch.tensor(3.5, dtype=torch.float16),
            torch.zeros(0, 3, dtype=torch.int64),
            torch.tensor([True, False]),
            torch.tensor([1 + 2j]).conj(),
            torch.nn.Parameter(torch.ones(3)),
        ]
        for share in (False, True):
            frame = frozen(tensors)
            values: Any = thaw(frame, share=share).value()
            for value, tensor in zip(values, tensors, strict=True):
                plain = tensor.detach().resolve_conj().contiguous()
                assert (value.dtype, value.shape, value.requires_grad) == (tensor.dtype, tensor.shape, False)
                bits = [t.reshape(-1).view(torch.uint8).tolist() for t in (value, plain)]
                assert bits[0] == bits[1]

    def test_tensors_are_private_unless_shared(self) -> None:
        frame = frozen(self.torch.zeros(8))
        thawed = thaw(frame)
        thawed.value().add_(1)  # type: ignore[attr-defined]
        assert thawed.value().sum() == 0  # type: ignore[attr-defined]
        shared: Any = thaw(frame, share=True)
        assert shared.value().data_ptr() == shared.value().data_ptr()

    def test_shared_tensors_keep_the_payload_alive(self) -> None:
        import gc

        tensor: Any = thaw(frozen(self.torch.arange(100_000)), share=True).value()
        gc.collect()
        assert tensor.sum() == 99_999 * 50_000

    def test_model_outputs(self) -> None:
        modeling = pytest.importorskip("transformers.modeling_outputs", reason="transformers is not installed")
        cls = modeling.BaseModelOutputWithPooling
        structures = Structures()
        structures.declare(cls)
        made = cls(last_hidden_state=self.torch.ones(1, 2, 3), pooler_output=None)
        value: Any = back(made, structures=structures).value()
        assert type(value) is cls
        assert list(value) == ["last_hidden_state"]
        assert value.last_hidden_state.shape == (1, 2, 3)

    def test_tensors_that_hold_no_plain_data_are_refused(self) -> None:
        for tensor in (self.torch.ones(3, device="meta"), self.torch.eye(3).to_sparse()):
            with pytest.raises(UnsupportedValueError):
                frozen(tensor)

    def test_int4_takes_float_tensors(self) -> None:
        tensor = self.torch.randn(64, 32)
        frame = frozen(tensor, Chain(INT4()))
        assert frame.size < tensor.nbytes / 3
        value: Any = thaw(frame).value()
        assert (value - tensor).abs().max() < tensor.abs().max() / 14 * 1.001


def test_torch_is_not_imported_before_a_tensor_is_met() -> None:
    code = (
        "import sys, numpy, mmcache.codecs.pipeline as p; from mmcache.codecs.structure import flatten;"
        "flatten([numpy.zeros(3), 'x', {'a': b'c'}]);"
        "assert not {'torch', 'zstandard', 'cryptography'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_corrupt_frames_are_named_so() -> None:
    frame = frozen(np.zeros(16))
    leaf = frame.header.leaves[0]
    for change in ({"kind": "pickle"}, {"dtype": "|O"}, {"dtype": "f4,f4"}, {"dtype": "<V0"}, {"offset": 8},
                   {"kind": "scalar"}, {"kind": "torch.bfloat16"}, {"kind": "str"}, {"kind": "torch.x"}):  # fmt: skip
        leaves = (msgspec.structs.replace(leaf, **change),)
        with pytest.raises(CorruptFrameError):
            thaw(replace(frame, header=msgspec.structs.replace(frame.header, leaves=leaves)))
    for shape in ((15,), (17,), (2**40, 2**40), (1,) * 100, (2**70,)):
        leaves = (msgspec.structs.replace(leaf, shape=shape),)
        with pytest.raises((CorruptFrameError, CodecError)):
            thaw(replace(frame, header=msgspec.structs.replace(frame.header, leaves=leaves)))
    for tree in ([0, 0], [9], [1], [1, [[0], [0]]], [], [1, [5]], [3, ["a"], []], [3, ["a", "a"], [1, [0]]], b"x",
                 [4, "os.system", ["x"], [[0]]], [5], [3, [1.5], [[0]]]):  # fmt: skip
        header = msgspec.structs.replace(frame.header, tree=msgspec.Raw(msgspec.msgpack.encode(tree)))
        with pytest.raises((CorruptFrameError, UnsupportedValueError)):
            thaw(replace(frame, header=header))
    deep = msgspec.Raw(b"\x92\x01\x91" * 5000 + b"\xc0")
    with pytest.raises(CorruptFrameError):
        thaw(replace(frame, header=msgspec.structs.replace(frame.header, tree=deep)))
