"""Regions: ids, bounds, tiles, and what an index knows. The properties stand in tests/property/test_regions.py."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from PIL import Image
from tests.unit.keys.media import SALT, noise, same

from mmcache.keys.region import FILTERS, Region, dynamic_tiles, tiles
from mmcache.keys.region_index import RegionIndex
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import WHOLE

WHOLE_REGION = Region.whole(100, 80)


def test_the_original_itself_shares_its_key() -> None:
    for region in (
        WHOLE_REGION, WHOLE_REGION.crop((0, 0, 100, 80)), WHOLE_REGION.resize((100, 80)), WHOLE_REGION.rotate90(4),
        WHOLE_REGION.flip_left_right().flip_left_right(), WHOLE_REGION.flip_top_bottom().rotate90(2).flip_left_right(),
    ):  # fmt: skip
        assert region.is_whole
        assert region.digest(SALT) == WHOLE
        assert region == WHOLE_REGION
    assert WHOLE_REGION.crop((0, 0, 100, 79)).digest(SALT) != WHOLE


def test_crops_compose_and_resamplings_do_not() -> None:
    assert WHOLE_REGION.crop((10, 10, 90, 70)).crop((5, 5, 20, 20)) == WHOLE_REGION.crop((15, 15, 30, 30))
    once, twice = WHOLE_REGION.resize((25, 20)), WHOLE_REGION.resize((50, 40)).resize((25, 20))
    assert once != twice
    assert once.digest(SALT) != twice.digest(SALT)
    assert not same(once.render(noise(100, 80)), twice.render(noise(100, 80)))


def test_size_filter_place_and_realm_count() -> None:
    crop = WHOLE_REGION.crop((0, 0, 30, 20))
    regions = [crop.resize(size, kind) for size in ((10, 10), (10, 11), (60, 40)) for kind in FILTERS]
    regions += [crop, crop.rotate90(), crop.rotate90(2), crop.flip_left_right(), WHOLE_REGION.crop((1, 0, 31, 20))]
    assert len({region.digest(SALT) for region in regions}) == len(regions)
    assert len({region.interchange_id(b"original") for region in regions}) == len(regions)
    assert crop.digest(SALT) != crop.digest(bytes(32))


def test_the_interchange_id_is_fnv_1a_of_sha_256_and_recipe() -> None:
    region = WHOLE_REGION.crop((1, 2, 31, 42)).resize((15, 20), "lanczos")
    expected = 0xCBF29CE484222325
    for byte in hashlib.sha256(b"original").digest()[:8] + region.canonical():
        expected = (expected ^ byte) * 0x100000001B3 % 2**64
    assert region.interchange_id(b"original") == expected
    assert region.canonical().hex() == (
        "5231" + "0600" + "010000000200000" + "01f0000002a0000000f00000014000000"
        + "0000" + "00000000000000000f000000140000000000000000000000"
    )  # fmt: skip
    assert region.interchange_id(b"other") != region.interchange_id(b"original")


def test_bad_geometry_is_refused() -> None:
    boxes: list[Any] = [
        (0, 0, 0, 5),
        (5, 5, 4, 9),
        (-1, 0, 5, 5),
        (0, 0, 101, 5),
        (0, 0, 5.0, 5),
        (0, 0, True, 5),
        (1, 2),
    ]
    for box in boxes:
        with pytest.raises(InvalidInputError):
            WHOLE_REGION.crop(box)
    sizes: list[Any] = [(0, 5), (5, -1), (5, 1 << 25), (5.0, 5)]
    for size in sizes:
        with pytest.raises(InvalidInputError):
            WHOLE_REGION.resize(size)
        with pytest.raises(InvalidInputError):
            Region.whole(*size)
    with pytest.raises(InvalidInputError, match="filter"):
        WHOLE_REGION.resize((5, 5), "sinc")
    other: list[Any] = [noise(80, 100), "picture", None]
    for picture in other:
        with pytest.raises(InvalidInputError, match="100 × 80"):
            WHOLE_REGION.render(picture)


GRIDS: list[tuple[tuple[int, int], Any, int]] = [
    ((100, 80), 32, 0), ((100, 80), 32, 8), ((10, 10), 32, 0), ((64, 32), (32, 16), 0), ((65, 33), 32, 0),
    ((1, 1), 1, 0),
]  # fmt: skip


@pytest.mark.parametrize(("size", "tile", "overlap"), GRIDS)
def test_tiles_cover_every_pixel(size: tuple[int, int], tile: Any, overlap: int) -> None:
    grid = tiles(*size, tile, overlap)
    seen = [[0] * size[0] for _ in range(size[1])]
    for region in grid:
        left, upper, right, lower = region.box
        for y in range(upper, lower):
            for x in range(left, right):
                seen[y][x] += 1
    assert min(map(min, seen)) >= 1
    if overlap == 0:
        assert max(map(max, seen)) == 1
    assert len(set(grid)) == len(grid)


def test_tiles_refuse_nonsense() -> None:
    for tile, overlap in ((0, 0), (-5, 0), (8, 8), (8, -1)):
        with pytest.raises(InvalidInputError):
            tiles(20, 20, tile, overlap)


def test_dynamic_tiles_are_internvls() -> None:
    assert [len(dynamic_tiles(*size)) for size in ((448, 448), (896, 448), (1344, 896), (4000, 400))] == [1, 3, 7, 11]
    regions = dynamic_tiles(60, 30, tile=16, most=4)
    picture = noise(60, 30)
    scaled = picture.resize((32, 16), Image.Resampling.BICUBIC)
    assert same(regions[1].render(picture), scaled.crop((16, 0, 32, 16)))
    assert same(regions[2].render(picture), picture.resize((16, 16), Image.Resampling.BICUBIC))


def test_containment_and_overlap() -> None:
    crop = WHOLE_REGION.crop((10, 10, 50, 50))
    assert WHOLE_REGION.contains(crop)
    assert not crop.contains(WHOLE_REGION)
    assert crop.overlaps(WHOLE_REGION.crop((49, 49, 60, 60)))
    assert not crop.overlaps(WHOLE_REGION.crop((50, 10, 60, 60)))
    assert not crop.overlaps_box((0, 0, 10, 80))
    assert not crop.overlaps(Region.whole(100, 81))
    assert not Region.whole(200, 200).contains(crop)


def test_an_index_offers_three_of_the_four_tiles_of_a_crop() -> None:
    index, grid = RegionIndex(), tiles(100, 80, 40)
    index.add(b"a", grid[:2] + grid[3:4])
    crop = WHOLE_REGION.crop((20, 20, 70, 70))
    wanted = [tile for tile in grid if tile.overlaps(crop)]
    coverage = index.coverage(b"a", wanted)
    assert str(coverage) == "3 of 4"
    assert coverage.missing == (grid[4],)
    assert index.coverage(b"b", wanted).have == ()
    index.add(b"a", [WHOLE_REGION, WHOLE_REGION.crop((10, 10, 80, 80))])
    assert index.covering(b"a", crop) == [WHOLE_REGION.crop((10, 10, 80, 80)), WHOLE_REGION]
    assert len(index.overlapping(b"a", crop)) == 5
    index.discard(b"a", [WHOLE_REGION])
    assert WHOLE_REGION not in index.known(b"a")
    index.discard(b"a")
    assert index.known(b"a") == set()


def test_an_index_is_bounded() -> None:
    index = RegionIndex(most_originals=2)
    for original in (b"a", b"b", b"a", b"c"):
        index.add(original, [WHOLE_REGION])
    assert [bool(index.known(original)) for original in (b"a", b"b", b"c")] == [True, False, True]
