"""What a module holds outside of its parameters and buffers counts, by content, the same in every process."""

from __future__ import annotations

import dataclasses
import enum
import functools
import subprocess
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mmcache.keys.signing import describe
from mmcache.model.errors import UnversionedModelError


class Holder(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, **held: Any) -> None:
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value)


class Kind(enum.Enum):
    A = 1
    B = 2


@dataclasses.dataclass
class Sizes:
    heads: int


def linear(seed: float) -> torch.nn.Linear:
    torch.manual_seed(int(seed))
    return torch.nn.Linear(2, 2)


def times(factor: float) -> Callable[[Any, Any, Any], Any]:
    return lambda module, given, out: out * factor


def hooked(factor: float) -> Any:
    model = linear(0)
    model.register_forward_hook(times(factor))
    return model


def same_name(number: float) -> Any:
    """A class whose name does not tell which `forward` it has."""
    forward = (lambda self, x: x + 1) if number == 1 else (lambda self, x: x * 1)
    return type("Net", (torch.nn.Module,), {"forward": forward, "__module__": __name__})()


PAIRS: dict[str, Callable[[float], Any]] = {
    "a tensor that is no buffer": lambda n: Holder(mean=torch.tensor([n])),
    "a private number": lambda n: Holder(_scale=n),
    "an array": lambda n: Holder(mean=np.array([n])),
    "a numpy scalar": lambda n: Holder(mean=np.float32(n)),
    "bytes": lambda n: Holder(x=b"%d" % n),
    "a complex number": lambda n: Holder(x=complex(0, n)),
    "a slice": lambda n: Holder(x=slice(int(n))),
    "an enum": lambda n: Holder(x=Kind(int(n))),
    "bound arguments": lambda n: Holder(x=functools.partial(torch.clamp, max=n)),
    "a lambda's constants": lambda n: Holder(x=(lambda x: x + 1) if n == 1 else (lambda x: x + 2)),
    "what a function closes over": lambda n: Holder(x=times(n)),
    "modules in a plain list": lambda n: Holder(x=[linear(n)]),
    "the owner of a bound method": lambda n: Holder(x=linear(n).forward),
    "a dataclass": lambda n: Holder(x=Sizes(int(n))),
    "an object": lambda n: Holder(x=SimpleNamespace(heads=n)),
    "keys of another type": lambda n: Holder(x={1: 2} if n == 1 else {"1": 2}),
    "something deep": lambda n: Holder(x=[[[[[[[[[[n]]]]]]]]]]),
    "a forward hook": hooked,
    "the code of forward": same_name,
}


@pytest.mark.parametrize("what", PAIRS)
def test_what_a_module_holds_changes_its_signature(what: str) -> None:
    make = PAIRS[what]
    assert describe(make(1)).digest == describe(make(1)).digest
    assert describe(make(1)).digest != describe(make(2)).digest


def test_what_holds_itself_has_a_signature() -> None:
    model = Holder(inner=linear(0))
    model.parents = [model]
    outside = linear(1)
    outside.parents = [model, outside]
    model.others = [outside]
    loop: list[Any] = []
    loop.append(loop)
    model.loop = loop
    assert describe(model) == describe(model)


def test_without_end_and_without_code_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(UnversionedModelError, match="deeply"):
        describe(Holder(x=deep))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.trace(linear(0), torch.ones(2))
    with pytest.raises(UnversionedModelError, match="TorchScript"):
        describe(script)


def test_every_process_finds_the_same() -> None:
    code = (
        "import torch; from mmcache.keys.signing import describe; torch.manual_seed(0); "
        "m = torch.nn.TransformerEncoderLayer(8, 2); m.words = {'a', 'b', 'c'}; m.f = lambda x: x in {'d', 'e', 'f'}; "
        "m.register_forward_hook(lambda m, i, o: o); print(describe(m).digest.hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
