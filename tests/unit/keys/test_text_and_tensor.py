"""Text and arrays: identity by content, never by wrapping; hostile values."""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from tests.unit.keys.media import SALT, of

from mmcache.keys.content import identify
from mmcache.model.errors import InvalidInputError


def test_text_is_its_nfc_form() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert of(composed, "text").digest == of(decomposed, "text").digest
    assert of(decomposed, "text").canonical() == composed
    texts = ["", " ", "a", "A", "a ", "a\0", "\u212b", "ﬁ", "fi", "\u200b", "a\r\n", "a\n", "😀"]
    assert len({of(text, "text").digest for text in texts}) == len(texts)
    assert of("", "text").canonical() == ""
    assert of("abc", "text").digest.hex() == "16a473bfae019be587eda64f207861bb"


def test_text_that_is_none_is_refused() -> None:
    for source in ("a\ud800", "\udfff", b"bytes", None, 3):
        with pytest.raises(InvalidInputError):
            of(source, "text")
    with pytest.raises(InvalidInputError, match="no modality"):
        identify("x", "smell", salt=SALT)


def test_a_str_subclass_is_given_to_the_model_as_str() -> None:
    class Loud(str):
        def encode(self, *_: Any) -> bytes:
            return b"something else"

    assert of(Loud("abc"), "text").digest == of("abc", "text").digest
    assert type(of(Loud("abc"), "text").canonical()) is str


ARRAYS: list[Any] = [
    np.zeros(4, np.float32), np.zeros((2, 2), np.float32), np.zeros((4, 1), np.float32), np.zeros(4, np.int32),
    np.zeros(4, np.uint32), np.zeros(4, ">i4"), np.zeros(2, np.float64), np.zeros(8, np.float16),
    np.zeros(16, np.uint8),
    np.zeros(16, bool), np.zeros(16, "S1"), np.zeros(4, "U1"), np.zeros(2, "M8[s]"), np.zeros(2, "M8[ns]"),
    np.zeros(2, "m8[ns]"), np.zeros(1, np.complex128), np.zeros((), np.float64), np.zeros((1,), np.float64),
    np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(0), np.zeros(8, ml_dtypes.bfloat16),
    np.zeros(16, ml_dtypes.float8_e4m3fn), np.zeros(16, ml_dtypes.float8_e5m2), np.zeros(16, np.int8),
    torch.zeros(4), torch.zeros(2, 2), torch.zeros(8, dtype=torch.bfloat16), torch.zeros(8, dtype=torch.float16),
    torch.zeros(2, dtype=torch.float64), torch.zeros(4, dtype=torch.int32), torch.zeros(()), torch.zeros(0, 3),
    torch.zeros(16, dtype=torch.float8_e4m3fn), torch.zeros(1, dtype=torch.complex128),
    torch.zeros(16, dtype=torch.bool),
]  # fmt: skip


def test_dtype_shape_and_kind_count() -> None:
    contents = [of(array, "tensor") for array in ARRAYS]
    assert len({content.digest for content in contents}) == len(ARRAYS)
    for array, content in zip(ARRAYS, contents, strict=True):
        given = content.canonical()
        assert type(given) is type(array)
        assert given.dtype == array.dtype
        assert given.shape == array.shape
        assert content.digest == of(given, "tensor").digest


def test_layout_does_not_count() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (base[::2, ::-1], base.T, np.asfortranarray(base), base[:, :1], np.broadcast_to(base[0], (3, 6))):
        content = of(view, "tensor")
        assert content.digest == of(view.copy(), "tensor").digest
        assert content.canonical().flags.c_contiguous
        assert np.array_equal(content.canonical(), view)
    tensor = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6)
    for t in (tensor.T, tensor[::2, 1:4], tensor[0].expand(3, 6), tensor.clone().requires_grad_()):
        content = of(t, "tensor")
        assert content.digest == of(t.detach().clone().contiguous(), "tensor").digest
        assert content.canonical().is_contiguous()
        assert not content.canonical().requires_grad
    odd = torch.complex(torch.ones(3), torch.ones(3)).conj()
    assert of(odd, "tensor").digest == of(odd.resolve_conj(), "tensor").digest
    read_only = base.copy()
    read_only.flags.writeable = False
    assert of(read_only, "tensor").digest == of(base, "tensor").digest
    assert of(base.view(np.memmap), "tensor").digest == of(base, "tensor").digest


def test_nan_and_zero_are_bytes_like_any_other() -> None:
    quiet = np.array([0x7FC00000, 0x3F800000], np.uint32).view(np.float32)
    payload = np.array([0x7FC00001, 0x3F800000], np.uint32).view(np.float32)
    assert of(quiet, "tensor").digest == of(quiet.copy(), "tensor").digest
    assert of(quiet, "tensor").digest != of(payload, "tensor").digest
    assert of(np.array([0.0]), "tensor").digest != of(np.array([-0.0]), "tensor").digest
    assert of(torch.tensor([float("nan")]), "tensor").canonical().isnan().all()


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch announces the end of quantised tensors
def test_arrays_without_canonical_bytes_are_refused() -> None:
    hostile: list[Any] = [
        np.array([object()]), np.zeros(2, [("a", "i4"), ("b", "f4")]), np.ma.masked_array([1, 2], [True, False]),
        torch.zeros(3).to_sparse(), torch.empty(3, device="meta"), [1, 2], 3.0, None, "text", b"bytes",
    ]  # fmt: skip
    hostile.append(torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8))
    for source in hostile:
        with pytest.raises(InvalidInputError):
            of(source, "tensor")


@pytest.mark.parametrize("array", [np.zeros(5), torch.zeros(5)])
def test_an_array_that_is_written_meanwhile_is_refused(array: Any) -> None:
    content = of(array, "tensor")
    array[2] = 7
    with pytest.raises(InvalidInputError, match="changed"):
        content.canonical()


def test_the_model_gets_a_copy_that_later_writes_do_not_reach() -> None:
    array = np.zeros(5)
    content = of(array, "tensor")
    given = content.canonical()
    array[:] = 9
    assert (given == 0).all()


def test_a_tensor_of_one_element_with_a_stride_is_its_value() -> None:
    odd = torch.tensor([1 + 2j]).conj().imag
    assert odd.stride() == (2,)
    assert of(odd, "tensor").digest == of(torch.tensor([-2.0]), "tensor").digest


def test_a_string_enum_is_its_value_and_not_its_name() -> None:
    class Prompt(str, enum.Enum):  # noqa: UP042  (prints as Prompt.HELLO, other than StrEnum)
        HELLO = "hello"

    found = of(Prompt.HELLO, "text")
    assert found.digest == of("hello", "text").digest
    assert found.canonical() == "hello"
