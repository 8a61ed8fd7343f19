"""Storing outputs behind the engine's back: a step copies its output and goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mmcache.integrations.vllm.leases import Facts

if TYPE_CHECKING:
    import torch


class Saved(NamedTuple):
    """An output to store. `ready()` waits until its copy is complete."""

    name: str
    facts: Facts
    tensor: torch.Tensor
    ready: Callable[[], object]
    cost: float


class Saving:
    """A thread that stores. What does not fit its backlog is not stored, and counted by `dropped`."""

    def __init__(self, store: Callable[[Saved], None], backlog_bytes: int) -> None:
        self._store, self._limit = store, backlog_bytes
        self._queue: queue.SimpleQueue[Saved | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def save(self, name: str, facts: Facts, output: torch.Tensor, cost: float = 0.0) -> bool:
        """Copy `output` (asynchronously, from an accelerator) and have it stored; False where it does not fit, or
        there is no memory for the copy."""
        size = output.numel() * output.element_size()
        with self._lock:
            if self._waiting + size > self._limit:
                self.dropped += 1
                return False
            self._waiting += size
        try:
            copy, ready = _copied(output)
        except RuntimeError:  # torch's, of memory or of a device: the step goes on
            self._done(size, dropped=True)
            return False
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mmcache-vllm-saving", daemon=True)
                self._thread.start()
            self._queue.put(Saved(name, facts, copy, ready, cost))
        return True

    def _done(self, size: int, *, dropped: bool) -> None:
        with self._lock:
            self._waiting -= size
            self.dropped += dropped

    def _run(self) -> None:
        while (saved := self._queue.get()) is not None:
            dropped = True
            try:
                saved.ready()
                dropped = False
                self._store(saved)
            except RuntimeError:
                continue
            finally:
                self._done(saved.tensor.numel() * saved.tensor.element_size(), dropped=dropped)

    def close(self) -> None:
        """Return when all is stored."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._queue.put(None)
        if thread is not None:
            thread.join()


def _copied(output: Any) -> tuple[Any, Callable[[], object]]:
    """A copy in this machine's memory, and what waits for it. The engine may reuse the original as soon as it likes:
    the copy is queued before, on the same stream."""
    import torch

    if output.device.type == "cpu":
        return output.detach().clone(memory_format=torch.contiguous_format), bool
    if output.device.type != "cuda":
        return output.detach().cpu().contiguous(), bool
    copy = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
    copy.copy_(output.detach(), non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    return copy, done.synchronize
