"""Cache load and forward pass as one CUDA graph: one launch a request instead of one for each kernel.

Captured once for each combination of shapes (a graph's addresses and shapes are fixed); a request copies what the cache
gave into the graph's own inputs and replays it. No part of the product: no machine with a GPU has measured it yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from mmcache.model.errors import SettingsError

MOST_GRAPHS = 16
"""Combinations of shapes captured; each holds its inputs, outputs and what is between them in GPU memory."""
WARM_UPS = 3
"""Plain passes before a capture: libraries choose algorithms and take their workspace then, which a graph must not."""

Shapes = tuple[tuple[str, tuple[int, ...], str], ...]


def available() -> str:
    """Empty where graphs can be captured here, else why not."""
    if find_spec("torch") is None:
        return "torch is not installed; pip install 'mmcache[gpu]'"
    import torch

    return "" if torch.cuda.is_available() else "torch finds no CUDA device"


class Graphed:
    """`forward(**blocks)` of what the cache gave, on the GPU. Not safe under threads: one stream, one set of inputs."""

    def __init__(self, forward: Callable[..., Any], most: int = MOST_GRAPHS) -> None:
        """forward: takes CUDA tensors by name and gives one tensor; the same work whatever their values are.

        Raises `SettingsError` where there is no GPU; call `forward` itself there.
        """
        if why := available():
            raise SettingsError(f"no CUDA graph can be captured: {why}")
        self._forward, self._most = forward, most
        self._graphs: OrderedDict[Shapes, tuple[Any, dict[str, Any], Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._graphs)

    def __call__(self, blocks: Mapping[str, Any]) -> Any:
        """blocks: host or CUDA tensors by name. Returns the graph's own output, which the next call overwrites."""
        import torch

        shapes = shapes_of(blocks)
        found = self._graphs.get(shapes)
        if found is None:
            found = self._captured(blocks)
            self._graphs[shapes] = found
            while len(self._graphs) > self._most:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(shapes)
        graph, inputs, output = found
        with torch.no_grad():
            for name, block in blocks.items():
                inputs[name].copy_(block, non_blocking=True)
        graph.replay()
        return output

    def _captured(self, blocks: Mapping[str, Any]) -> tuple[Any, dict[str, Any], Any]:
        import torch

        inputs = {name: block.to("cuda", copy=True) for name, block in blocks.items()}
        aside, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                self._forward(**inputs)
        torch.cuda.current_stream().wait_stream(aside)
        with torch.no_grad(), torch.cuda.graph(graph):
            output = self._forward(**inputs)
        return graph, inputs, output


def shapes_of(blocks: Mapping[str, Any]) -> Shapes:
    """What a graph is captured for."""
    return tuple((name, tuple(block.shape), str(block.dtype)) for name, block in blocks.items())
