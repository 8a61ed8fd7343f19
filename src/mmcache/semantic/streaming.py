"""`Streaming`: `ask_stream`. One computation a prompt, however many read it while it lasts."""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

from mmcache import forks
from mmcache.forks import Lock
from mmcache.model.errors import StreamLostError
from mmcache.model.key import Key
from mmcache.semantic.options import AskOptions
from mmcache.semantic.pending import answering
from mmcache.semantic.planning import Plan
from mmcache.semantic.prompt import Prompt
from mmcache.semantic.stream import Broadcast, Stream, stored

if TYPE_CHECKING:
    from mmcache.semantic.meaning import Meaning


class Streaming:
    """The streams under way in this process. A stream goes on to its end, and is stored, if its readers leave."""

    fork_order = 0

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning
        self._lock = Lock()
        self._under_way: dict[Key, Broadcast] = {}
        self._tasks: set[Any] = set()
        forks.join(self)

    def before_fork(self) -> None:
        """See `forks`."""

    def after_fork(self, child: bool) -> None:
        """A child has none of its parent's threads, so no stream under way."""
        if child:
            self._under_way = {}

    # Threads --------------------------------------------------------------------------------------------------------

    def ask(self, prompt: Prompt, answer: Callable[[Prompt], Iterator[Any]], options: AskOptions) -> Stream:
        """See `Cache.ask_stream`."""
        meaning = self._meaning
        plan = meaning.plan(prompt, options, "stream", thread=0, blocking=True)
        if plan is None:
            given = meaning.canonical(prompt)
            return _in_thread(lambda push: meaning.aside(lambda: _pumped(answer, given, push), options).value)
        if (joined := self._near(plan)) is not None:
            return joined
        if plan.follows is not None and (make := meaning.follow(plan)) is not None:
            return meaning.served_stream(plan, stored(make()))
        if plan.look.make is not None:
            value = meaning.settle(plan, _ran(plan, lambda: list(answer(plan.found.canonical))), options)
            return meaning.computed_stream(plan, stored(value))
        with meaning.leading(plan):
            canonical = plan.found.canonical
            broadcast, mine = self._join(plan)

            def lead(push: Callable[[Any], None]) -> Any:
                with meaning.leading(plan):
                    return meaning.settle(plan, _ran(plan, lambda: _pumped(answer, canonical, push)), options)

            if mine:
                _run(broadcast, lead, lambda: self._leave(plan.found.key, broadcast))
        return meaning.computed_stream(plan, broadcast)

    # Tasks ----------------------------------------------------------------------------------------------------------

    async def ask_async(
        self, prompt: Prompt, answer: Callable[[Prompt], AsyncIterator[Any] | Iterator[Any]], options: AskOptions
    ) -> Stream:
        """See `AsyncCache.ask_stream`."""
        import asyncio

        if not inspect.isasyncgenfunction(answer):
            return await asyncio.to_thread(self.ask, prompt, answer, options)  # type: ignore[arg-type]
        meaning = self._meaning
        plan = await meaning.plan_async(prompt, options, "stream")
        if plan is None:
            broadcast = Broadcast()
            given = await asyncio.to_thread(meaning.canonical, prompt)

            async def aside() -> Any:
                return (await meaning.aside_async(lambda: _pumped_async(answer, given, broadcast.push), options)).value

            self._spawn(broadcast, aside, lambda: None)
            return Stream(broadcast, "computed")
        if (joined := self._near(plan)) is not None:
            return joined
        if plan.follows is not None and (make := await meaning.follow_async(plan)) is not None:
            return meaning.served_stream(plan, stored(make()))
        with meaning.leading(plan):
            canonical = await asyncio.to_thread(lambda: plan.found.canonical)
            broadcast, mine = self._join(plan)

        async def compute() -> Any:
            plan.ran = True
            return await _pumped_async(answer, canonical, broadcast.push)

        async def lead() -> Any:
            with meaning.leading(plan):
                return await meaning.settle_async(plan, compute, options)

        if mine:
            self._spawn(broadcast, lead, lambda: self._leave(plan.found.key, broadcast))
        return meaning.computed_stream(plan, broadcast)

    def _spawn(self, broadcast: Broadcast, lead: Callable[[], Awaitable[Any]], leave: Callable[[], None]) -> None:
        import asyncio

        async def run() -> None:
            try:
                whole = await lead()
            except BaseException as error:
                leave()
                broadcast.end(error=error if isinstance(error, Exception) else _lost(error))
                if isinstance(error, Exception):
                    return
                raise  # cancelled: the loop must hear of it
            leave()
            broadcast.end(whole)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)  # a loop holds its tasks only weakly
        task.add_done_callback(self._tasks.discard)

    # Joining --------------------------------------------------------------------------------------------------------

    def _near(self, plan: Plan) -> Stream | None:
        """The stored answer of a near prompt, or the stream of one under way."""
        meaning = self._meaning
        if (make := plan.stored) is not None:
            return meaning.served_stream(plan, stored(cast("list[Any]", make())))
        if plan.follows is None:
            return None
        with self._lock:
            broadcast = self._under_way.get(plan.follows.key)
        return None if broadcast is None else meaning.served_stream(plan, broadcast)

    def _join(self, plan: Plan) -> tuple[Broadcast, bool]:
        """The stream of this very prompt, and whether the caller must lead it."""
        with self._lock:
            broadcast = self._under_way.get(plan.found.key)
            mine = broadcast is None
            if broadcast is None:
                broadcast = self._under_way[plan.found.key] = Broadcast()
        if not mine:
            self._meaning.landed(plan)
            self._meaning.count(plan, "computed")
        return broadcast, mine

    def _leave(self, key: Key, broadcast: Broadcast) -> None:
        with self._lock:
            if self._under_way.get(key) is broadcast:
                del self._under_way[key]


def _in_thread(lead: Callable[[Callable[[Any], None]], Any]) -> Stream:
    broadcast = Broadcast()
    _run(broadcast, lead, lambda: None)
    return Stream(broadcast, "computed")


def _run(broadcast: Broadcast, lead: Callable[[Callable[[Any], None]], Any], leave: Callable[[], None]) -> None:
    """`lead` in a thread of its own: it outlives the reader who began it."""
    context = copy_context()

    def run() -> None:
        try:
            whole = context.run(lead, broadcast.push)
        except BaseException as error:  # noqa: BLE001 - handed to the readers, whatever it is
            leave()
            broadcast.end(error=error)
            return
        leave()
        broadcast.end(whole)

    try:
        threading.Thread(target=run, name="mmcache-stream", daemon=True).start()
    except RuntimeError as error:  # no more threads: who joined meanwhile hears of it
        leave()
        broadcast.end(error=error)
        raise


def _ran(plan: Plan, compute: Callable[[], Any]) -> Callable[[], Any]:
    """`compute`, which says that it ran."""

    def computing() -> Any:
        plan.ran = True
        return compute()

    return computing


def _lost(error: BaseException) -> StreamLostError:
    lost = StreamLostError("the task that computed this answer was cancelled; ask again")
    lost.__cause__ = error
    return lost


def _pumped(answer: Callable[[Prompt], Iterator[Any]], prompt: Prompt, push: Callable[[Any], None]) -> list[Any]:
    """All chunks, each pushed as it comes."""
    chunks = []
    with answering():
        for chunk in answer(prompt):
            chunks.append(chunk)
            push(chunk)
    return chunks


async def _pumped_async(
    answer: Callable[[Prompt], AsyncIterator[Any]], prompt: Prompt, push: Callable[[Any], None]
) -> list[Any]:
    """The async twin of `_pumped`."""
    chunks = []
    with answering():
        async for chunk in answer(prompt):
            chunks.append(chunk)
            push(chunk)
    return chunks
