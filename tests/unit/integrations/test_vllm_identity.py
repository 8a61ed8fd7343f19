"""Who an item is: everything that the encoder sees counts, and nothing that a user can make up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.integrations.vllm.identity import encodable, identify, key_of, name_of, tenant_of
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key

torch = pytest.importorskip("torch")
SALT = bytes(range(32))


def item(**changes: Any) -> dict[str, Any]:
    pixels = torch.arange(3 * 8 * 8, dtype=torch.float32).reshape(3, 8, 8)
    return {"pixel_values": pixels, "image_grid_thw": torch.tensor([1, 2, 3]), **changes}


def digest(data: dict[str, Any] | None, modality: str = "image", salt: bytes = SALT) -> bytes:
    return identify(modality, data, salt).digest


def test_equal_content_is_equal_however_it_lies_in_memory() -> None:
    strided = torch.arange(2 * 3 * 8 * 8, dtype=torch.float32).reshape(3, 8, 8, 2)[..., 0] / 2
    assert digest(item()) == digest(item(pixel_values=strided))
    assert digest(item()) == digest(dict(reversed(item().items())))


@pytest.mark.parametrize(
    "other",
    [
        item(pixel_values=item()["pixel_values"].reshape(8, 3, 8)),
        item(pixel_values=item()["pixel_values"].double()),
        item(pixel_values=item()["pixel_values"].to(torch.bfloat16)),
        item(pixel_values=item()["pixel_values"].numpy()),
        item(pixel_values=[item()["pixel_values"]]),
        item(pixel_values=item()["pixel_values"] + torch.eye(8) * 1e-6),
        item(image_grid_thw=torch.tensor([1, 3, 2])),
        item(image_grid_thw=torch.tensor([1, 2, 3], dtype=torch.int32)),
        item(more=None),
        item(more=1),
        {"pixel_values_videos": item()["pixel_values"], "image_grid_thw": torch.tensor([1, 2, 3])},
        {"pixel_values": item()["pixel_values"]},
    ],
)  # fmt: skip
def test_any_other_content_is_another(other: dict[str, Any]) -> None:
    assert digest(item()) != digest(other)


def test_modality_and_realm_are_part_of_it() -> None:
    assert digest(item()) != digest(item(), "video")
    assert digest(item()) != digest(item(), salt=bytes(32))


def test_numbers_texts_and_lists_cannot_be_taken_for_each_other() -> None:
    values: list[Any] = [1, "1", b"1", 1.0, True, None, [1], [[1]], [1, None], [], "", "None"]
    assert len({digest(item(more=value)) for value in values}) == len(values)


@pytest.mark.parametrize(
    "data",
    [None, {}, {"image_grid_thw": torch.tensor([1, 2, 3])}, {"uuid": "A"}, {"image_embeds": None, "n": np.arange(3)}],
)
def test_an_item_without_its_content_has_no_identity(data: dict[str, Any] | None) -> None:
    """What was replaced by its uuid, or of which only sizes came, would equal every other picture of that size."""
    with pytest.raises(InvalidInputError):
        identify("image", data, SALT)
    assert not encodable(data)


@pytest.mark.parametrize("value", [torch.zeros(3, 3).to_sparse(), np.array([object()]), {"nested": 1}, object()])
def test_what_has_no_canonical_bytes_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        identify("image", item(strange=value), SALT)
    assert encodable(item(strange=value))


def test_depth_is_bounded() -> None:
    value: Any = 1
    for _ in range(50):
        value = [value]
    with pytest.raises(InvalidInputError):
        identify("image", item(deep=value), SALT)


def test_sizes_are_kept_and_content_is_not() -> None:
    data = item(num_patches=torch.tensor(4), image_sizes=[torch.tensor([6, 7]), np.array([8])])
    assert identify("image", data, SALT).sizes == {
        "image_grid_thw": [1, 2, 3],
        "num_patches": [4],
        "image_sizes": [6, 7, 8],
    }


@given(st.text(), st.text())
def test_another_salt_is_another_tenant(one: str, other: str) -> None:
    assert (tenant_of("t", one, SALT) == tenant_of("t", other, SALT)) == (one == other or not (one or other))


def test_a_salt_may_be_a_secret() -> None:
    found = tenant_of("t", "hunter2-hunter2", SALT)
    assert "hunter2" not in found
    assert found != tenant_of("t", "hunter2-hunter2", bytes(32))
    assert tenant_of("t", None, SALT) == tenant_of("t", "", SALT) == "t"


@given(st.binary(min_size=48, max_size=48))
def test_names_and_keys_are_one_to_one(raw: bytes) -> None:
    key = Key.from_bytes(raw)
    assert key_of(name_of(key)) == key


@given(st.text() | st.from_regex(r"(mmcache-)?[0-9a-fA-F./]{90,100}"))
def test_other_names_are_nobodys(text: str) -> None:
    """Users write uuids; none of them is believed, and none is ever a path."""
    found = key_of(text)
    assert found is None or name_of(found) == text


@pytest.mark.parametrize("name", ["A", "../outside", "mmcache-", "mmcache-" + "g" * 96, "mmcache-../" + "a" * 93])
def test_what_users_write_is_no_name(name: str) -> None:
    assert key_of(name) is None
