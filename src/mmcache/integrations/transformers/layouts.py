"""How pictures lie in a tower's arguments and outputs: what is cut apart by picture, and put together again.

A tower is taken only where it is known that row i of its outputs depends on picture i alone. What is not known is not
cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from mmcache.integrations.transformers.aside import Aside

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of a call: its numbers, and what else of the call is about it alone."""

    pixels: torch.Tensor
    beside: tuple[tuple[str, Any], ...] = ()
    """Name → tensor, or tuple of int."""
    rows: int = 1
    """How many rows of packed inputs are its own."""
    out: int = 1
    """How many rows of packed outputs are its own; with merged patches fewer than `rows`."""


class Layout(Protocol):
    """One way in which a batch of pictures is laid out."""

    @property
    def name(self) -> str:
        """Stands in signatures."""

    def take(self, arguments: Arguments) -> list[Picture]:
        """The pictures of a call. Raises `Aside` where they cannot be told apart."""

    def own(self, arguments: Arguments) -> set[str]:
        """Names of the arguments that `take` took apart; all others are the same for every picture."""

    def some(self, arguments: Arguments, pictures: Sequence[Picture], places: Sequence[int]) -> dict[str, Any]:
        """The arguments of a call for the pictures at `places` alone."""

    def cut(self, leaf: torch.Tensor, pictures: Sequence[Picture]) -> list[torch.Tensor]:
        """An output, a part for each picture. Raises `Aside` where its shape does not say which part is whose."""

    def glue(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """`cut` backwards, into memory of its own."""


@dataclass(frozen=True)
class Stacked:
    """First axis = picture, of pixels and of every output: CLIP, SigLIP, DINOv2, ViT, Idefics…

    beside: further arguments of which row i is about picture i, e.g. masks of padding.
    """

    pixels: str = "pixel_values"
    beside: tuple[str, ...] = ()
    name: str = "stacked"

    def take(self, arguments: Arguments) -> list[Picture]:
        """`pixels`: [n, …]."""
        pixels = _plain(arguments.get(self.pixels))
        if pixels.ndim < 3 or not len(pixels):
            raise Aside("pixels")
        others = {name: arguments[name] for name in self.own(arguments) if name != self.pixels}
        for other in others.values():
            if _plain(other).ndim < 1 or len(other) != len(pixels):
                raise Aside("argument")
        return [Picture(row, tuple((n, others[n][i]) for n in sorted(others))) for i, row in enumerate(pixels)]

    def own(self, arguments: Arguments) -> set[str]:
        """Those that are there."""
        return {self.pixels} | {name for name in self.beside if arguments.get(name) is not None}

    def some(self, arguments: Arguments, pictures: Sequence[Picture], places: Sequence[int]) -> dict[str, Any]:
        """Rows, copied."""
        rows = {name: torch.stack([arguments[name][i] for i in places]) for name in self.own(arguments)}
        return {**arguments, **rows}

    def cut(self, leaf: torch.Tensor, pictures: Sequence[Picture]) -> list[torch.Tensor]:
        """Row by row."""
        if leaf.ndim < 1 or len(leaf) != len(pictures):
            raise Aside("output")
        return list(leaf)

    def glue(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """[n, …]."""
        return torch.stack(list(parts))


@dataclass(frozen=True)
class Grid:
    """Patches of all pictures (or videos) in one row, and a table [n, 3] of how many each has in time, height and
    width: Qwen-VL. `merge`: patches a side that become one token.
    """

    merge: int
    pixels: str = "hidden_states"
    grid: str = "grid_thw"
    name: str = "grid"

    def take(self, arguments: Arguments) -> list[Picture]:
        """`pixels`: [patches of all, numbers a patch]."""
        pixels, grid = _plain(arguments.get(self.pixels)), _plain(arguments.get(self.grid))
        if pixels.ndim != 2 or grid.ndim != 2 or grid.shape[1] != 3 or not len(grid) or grid.is_floating_point():
            raise Aside("pixels")
        shapes = [tuple(map(int, row)) for row in grid.tolist()]
        rows = [time * height * width for time, height, width in shapes]
        if min(min(shape) for shape in shapes) < 1 or sum(rows) != len(pixels):
            raise Aside("pixels")
        if any(height % self.merge or width % self.merge for _, height, width in shapes):
            raise Aside("pixels")
        parts = torch.split(pixels, rows)
        kept = zip(parts, shapes, rows, strict=True)
        return [Picture(part, ((self.grid, shape),), own, own // self.merge**2) for part, shape, own in kept]

    def own(self, arguments: Arguments) -> set[str]:
        """Both."""
        return {self.pixels, self.grid}

    def some(self, arguments: Arguments, pictures: Sequence[Picture], places: Sequence[int]) -> dict[str, Any]:
        """Patches copied, rows of the table taken."""
        grid = arguments[self.grid]
        return {
            **arguments,
            self.pixels: torch.cat([pictures[i].pixels for i in places]),
            self.grid: grid[torch.tensor(list(places), device=grid.device)],
        }

    def cut(self, leaf: torch.Tensor, pictures: Sequence[Picture]) -> list[torch.Tensor]:
        """By patches, or by merged ones."""
        for sizes in ([one.rows for one in pictures], [one.out for one in pictures]):
            if leaf.ndim == 2 and len(leaf) == sum(sizes):
                return list(torch.split(leaf, sizes))
        raise Aside("output")

    def glue(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """[rows of all, …]."""
        return torch.cat(list(parts))


@dataclass(frozen=True)
class Sizes:
    """Pictures padded to one size; `sizes` [n, 2]: height, width of each; outputs [1, patches of all, …]: Pixtral."""

    patch: int
    pixels: str = "pixel_values"
    sizes: str = "image_sizes"
    name: str = "sizes"

    def take(self, arguments: Arguments) -> list[Picture]:
        """`pixels`: [n, channels, height, width]; sizes: tensor, list of pairs, or None = all of it."""
        pixels, given = _plain(arguments.get(self.pixels)), arguments.get(self.sizes)
        if pixels.ndim != 4 or not len(pixels):
            raise Aside("pixels")
        if given is None:
            given = [tuple(pixels.shape[-2:])] * len(pixels)
        shapes = [(int(h), int(w)) for h, w in (given.tolist() if isinstance(given, torch.Tensor) else given)]
        if len(shapes) != len(pixels):
            raise Aside("pixels")
        kept = []
        for row, (height, width) in zip(pixels, shapes, strict=True):
            patches = (min(height, row.shape[-2]) // self.patch) * (min(width, row.shape[-1]) // self.patch)
            kept.append(Picture(row, ((self.sizes, (height, width)),), patches, patches))
        return kept

    def own(self, arguments: Arguments) -> set[str]:
        """Both."""
        return {self.pixels, self.sizes}

    def some(self, arguments: Arguments, pictures: Sequence[Picture], places: Sequence[int]) -> dict[str, Any]:
        """Rows, copied."""
        given = arguments.get(self.sizes)
        sizes = given
        if isinstance(given, torch.Tensor):
            sizes = given[torch.tensor(list(places), device=given.device)]
        elif given is not None:
            sizes = [given[i] for i in places]
        return {**arguments, self.pixels: torch.stack([pictures[i].pixels for i in places]), self.sizes: sizes}

    def cut(self, leaf: torch.Tensor, pictures: Sequence[Picture]) -> list[torch.Tensor]:
        """Along the second axis. Maps of attention between all patches of all pictures are not cut."""
        sizes = [one.out for one in pictures]
        if leaf.ndim != 3 or leaf.shape[0] != 1 or leaf.shape[1] != sum(sizes):
            raise Aside("output")
        return list(torch.split(leaf, sizes, dim=1))

    def glue(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """[1, patches of all, …]."""
        return torch.cat(list(parts), dim=1)


def _plain(value: Any) -> torch.Tensor:
    """A dense tensor that holds data. Raises `Aside`."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise Aside("pixels")
    if value.layout is not torch.strided or value.is_quantized or value.is_meta or value.is_nested:
        raise Aside("pixels")
    return value
