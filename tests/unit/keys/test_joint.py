"""Joint keys: the exact one, the published one, and codes that find near queries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.keys import joint
from mmcache.keys.joint import CODE_BITS, Statistics, hamming, joint_digest, published_key, radius
from mmcache.model.errors import InvalidInputError

SALT = bytes(range(32))
Floats = npt.NDArray[np.float32]
keys = st.one_of(st.none(), st.binary(min_size=48, max_size=48))


def vectors(seed: int, count: int, width: int = 64) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def test_the_published_key_is_blind_behind_its_32nd_dimension() -> None:
    one, text = vectors(0, 2)
    other = one.copy()
    other[32:] += 1
    assert published_key(one, text) == published_key(other, text)
    other = one.copy()
    other[0] += 1e-4
    assert published_key(one, text) != published_key(other, text)
    assert published_key(one, text) != published_key(text, one)
    nought = np.zeros(40, np.float32)
    assert published_key(nought, text) == published_key(-nought, text)


@given(st.tuples(keys, keys, st.binary(max_size=8)), st.tuples(keys, keys, st.binary(max_size=8)))
def test_joint_digests_are_equal_exactly_when_the_parts_are(
    one: tuple[bytes | None, bytes | None, bytes], other: tuple[bytes | None, bytes | None, bytes]
) -> None:
    if one[:2] == (None, None) or other[:2] == (None, None):
        return
    assert (joint_digest(SALT, *one) == joint_digest(SALT, *other)) == (one == other)
    assert joint_digest(SALT, *one) != joint_digest(bytes(32), *one)


def test_a_retrieval_has_something_to_go_by() -> None:
    with pytest.raises(InvalidInputError, match="picture, words"):
        joint_digest(SALT, None, None)
    assert joint_digest(SALT, None, bytes(48)) != joint_digest(SALT, bytes(48), None)


@given(st.integers(0, 50), st.floats(0.01, 100))
def test_alignment_brings_every_norm_to_one_and_forgets_scale(seed: int, scale: float) -> None:
    sample = vectors(seed, 8)
    known = Statistics.fit(sample)
    assert np.allclose(np.linalg.norm(known.aligned(sample), axis=1), 1, atol=1e-5)
    scaled = (known.mean + np.float32(scale) * (sample - known.mean)).astype(np.float32)
    assert np.allclose(known.aligned(scaled), known.aligned(sample), atol=1e-2)


def test_what_equals_the_mean_is_like_no_other() -> None:
    known = Statistics.fit(vectors(0, 8))
    assert not known.aligned(known.mean).any()


@pytest.mark.parametrize("bad", [[[1.0, 2.0]], [1.0, 2.0], [[1.0], [float("nan")]]])
def test_statistics_need_a_sample(bad: list[object]) -> None:
    with pytest.raises(InvalidInputError):
        Statistics.fit(bad)  # type: ignore[arg-type]


def test_codes_differ_in_the_share_of_bits_that_the_angle_says() -> None:
    known = Statistics(np.zeros(64, np.float32))
    one, noise = vectors(1, 400), vectors(2, 400)
    near = (0.9 * one / np.linalg.norm(one, axis=1, keepdims=True)).astype(np.float32)
    across = noise - (noise * near).sum(1, keepdims=True) / 0.81 * near
    near += np.sqrt(1 - 0.81) * across / np.linalg.norm(across, axis=1, keepdims=True)
    bits = [int(hamming(known.codes(a[None]), known.codes(b))[0]) for a, b in zip(one, near, strict=True)]
    assert np.mean(bits) / CODE_BITS == pytest.approx(np.arccos(0.9) / np.pi, abs=0.01)
    assert sum(bit > radius(0.9) for bit in bits) <= 4  # 1 in 700 of those at exactly this cosine
    assert radius(1.0) == 0
    assert radius(0.5) > radius(0.9) > radius(0.99)


def test_hamming_without_numpy_2(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    codes = random.integers(0, 2**63, (2, 50), dtype=np.uint64)
    code = random.integers(0, 2**63, 2, dtype=np.uint64)
    plain = [sum(bin(int(codes[part, n] ^ code[part])).count("1") for part in (0, 1)) for n in range(50)]
    assert hamming(codes, code).tolist() == plain
    monkeypatch.delattr(joint.np, "bitwise_count", raising=False)  # type: ignore[attr-defined]
    assert hamming(codes, code).tolist() == plain
