"""CUDA graphs: refused where there is no GPU, and what plain calls give where there is one."""

from __future__ import annotations

import pytest

from mmcache.lab import plans_graphs as graphs
from mmcache.model.errors import SettingsError

torch = pytest.importorskip("torch")


def test_is_refused_without_a_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert graphs.available() == "torch finds no CUDA device"
    with pytest.raises(SettingsError, match="no CUDA graph can be captured: torch finds no CUDA device"):
        graphs.Graphed(lambda picture: picture)


def test_is_refused_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        return None

    monkeypatch.setattr(graphs, "find_spec", nothing)
    with pytest.raises(SettingsError, match=r"mmcache\[gpu\]"):
        graphs.Graphed(lambda picture: picture)


def test_a_graph_is_for_shapes_and_kinds() -> None:
    one = {"picture": torch.zeros(2, 3), "text": torch.zeros(4)}
    assert graphs.shapes_of(one) == (("picture", (2, 3), "torch.float32"), ("text", (4,), "torch.float32"))
    assert graphs.shapes_of(one) != graphs.shapes_of({**one, "text": torch.zeros(4).half()})


def test_replays_give_what_calls_give() -> None:
    if graphs.available():
        pytest.skip(f"not measured here: {graphs.available()}")
    layer = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).cuda().eval()

    def forward(picture: object, text: object) -> object:
        return layer(torch.cat([picture, text]))

    graphed = graphs.Graphed(forward, most=2)
    for turn in range(6):
        blocks = {"picture": torch.randn(2 + turn % 3, 8), "text": torch.randn(3, 8)}
        with torch.no_grad():
            plain = forward(**{name: block.cuda() for name, block in blocks.items()})
        assert torch.allclose(graphed(blocks), plain, atol=1e-5)
        assert len(graphed) <= 2
