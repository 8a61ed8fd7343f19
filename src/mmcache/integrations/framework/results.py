"""`Results`: what a slow component answered, kept under what it was asked and the state of what it was asked about.

An answer is kept as text that its door makes and reads again, so nothing that is stored can be executed. While a
component answers, its data may change: such an answer is handed out and not kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from blake3 import blake3

from mmcache.fill import in_thread
from mmcache.integrations.framework.realm import Realm
from mmcache.integrations.framework.ways import by
from mmcache.keys.content import identify
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.lookup import Lookup
from mmcache.model.errors import InvalidInputError, MMCacheError, SettingsError
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.settings import parse_ttl

State = str | Callable[[], str]
"""The name and version of what is asked about, or a function that tells it at every call."""


class UnstorableError(InvalidInputError):
    """An answer that must not be kept, e.g. a stream, or one that would come back as something else."""


class _PassedError(Exception):
    """Carries an answer past the cache."""

    def __init__(self, value: Any) -> None:
        super().__init__("handed out, not stored")
        self.value = value


@dataclass(frozen=True, slots=True)
class Question:
    """One call, ready to be looked up."""

    key: Key
    state: str


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and where it came from."""

    value: Any
    hit: bool
    reason: str = ""
    """Why it was no hit."""
    saved: float = 0.0
    """Seconds that computing it had taken."""


class Results:
    """Answers of one kind.

    kind: names the door, and behind a space the format of its texts. state: see `State`. ttl: in seconds, None = the
    cache's. freeze: an answer as text; raises `UnstorableError`. thaw: the answer anew. Raises `SettingsError`.
    """

    def __init__(
        self,
        realm: Realm,
        kind: str,
        state: State,
        freeze: Callable[[Any], str],
        thaw: Callable[[str], Any],
        ttl: float | None = None,
    ) -> None:
        if not callable(state) and not (isinstance(state, str) and state):
            raise SettingsError(
                "say what is asked about, and in which version: a name like 'manual 2026-11', or a function that tells "
                f"it, not {state!r:.60}"
            )
        parse_ttl(ttl)
        self.realm, self._kind, self._state, self._ttl = realm, kind, state, ttl
        self._freeze, self._thaw = freeze, thaw
        self._door = kind.partition(" ")[0]

    def name(self, state: str) -> str:
        """What blocks of this state are called, for `held` and `mmcache purge --model`."""
        return f"{self._kind}: {state}"

    def state(self) -> str:
        """Of now. Raises `InvalidInputError` where it is not told."""
        state = self._state() if callable(self._state) else self._state
        if not isinstance(state, str) or not state:
            raise InvalidInputError(f"the version of what is asked about was not told, but {state!r:.60}")
        return state

    def question(self, facts: Callable[[], str], parts: Callable[[bytes], bytes]) -> Question | str:
        """Of a component with these `facts`, asked what `parts(salt)` frames; or why this call is not looked up."""
        tenant = self.realm.tenant()
        if tenant is None:
            return "tenant"
        cache = self.realm.cache
        try:
            state = self.state()
            made_of = blake3(facts().encode()).hexdigest()[:32]
            signature = Signature(
                function=self._kind, model_version=self.name(state), preprocess=made_of, modality="text"
            )
            scope = cache.scopes.of(signature, tenant, self.realm.namespace)
            digest = blake3(framed("asked", parts(scope.salt)), key=scope.salt).digest(length=DIGEST_BYTES)
            return Question(Key(scope.digest, digest), state)
        except MMCacheError as error:
            self.realm.failed(f"not looked up: {type(error).__name__}")
            return "unidentified"
        except Exception as error:  # noqa: BLE001 - the state's function is a plug-in, and the call goes on without
            self.realm.failed(f"not looked up: {type(error).__name__} while telling the version of what is asked about")
            return "state"

    def picture(self, source: Any, salt: bytes) -> bytes:
        """What a picture (path, bytes, PIL image) is, for a question. Raises `InvalidInputError`, for addresses too."""
        content = identify(source, "image", salt=salt, memo=self.realm.cache.memo)
        return framed("picture", content.digest, content.decoder.encode())

    def answer(self, question: Question | str, compute: Callable[[], Any]) -> Told:
        """The stored answer, or `compute()`'s. Raises what `compute` raises, and nothing of the cache's own."""
        if isinstance(question, str):
            return Told(compute(), False, question)
        run = _Run(self, question, compute)
        try:
            with by(self._door):
                look = self._look(question)
                stored = self.realm.cache.answers.settle(question.key, look, run, ttl=self._ttl)
            return run.told(look, stored, self._thaw)
        except (MMCacheError, _PassedError) as error:
            if (told := run.despite(error, self.realm)) is not None:
                return told
            return Told(compute(), False, "failed")

    async def aanswer(self, question: Question | str, compute: Callable[[], Awaitable[Any]]) -> Told:
        """The async twin."""
        if isinstance(question, str):
            return Told(await compute(), False, question)
        run = _Run(self, question, compute)
        try:
            with by(self._door):
                look = await in_thread(lambda: self._look(question))
                stored = await self.realm.cache.answers.settle_async(question.key, look, run.awaited, ttl=self._ttl)
            return run.told(look, stored, self._thaw)
        except (MMCacheError, _PassedError) as error:
            if (told := run.despite(error, self.realm)) is not None:
                return told
            return Told(await compute(), False, "failed")

    def _look(self, question: Question) -> Lookup:
        look = self.realm.cache.answers.look_up([question.key], settled=True)[0]
        if look.make is not None:
            try:
                self._thaw(str(look.make()))
            except Exception as error:  # noqa: BLE001 - another release of the framework wrote it: a miss
                self.realm.failed(f"a stored answer could not be read ({type(error).__name__}); it is computed anew")
                self.realm.cache.invalidate(question.key)
                return replace(look, make=None)
        return look

    def frozen(self, question: Question, value: Any) -> str:
        """What is kept of `value`. Raises `_PassedError` where it is not."""
        try:
            if self.state() == question.state:
                return self._freeze(value)
        except UnstorableError:
            pass
        except Exception as error:  # noqa: BLE001 - the framework's own serialisation, or the state's function
            self.realm.failed(f"an answer was not kept: {type(error).__name__}")
        raise _PassedError(value)


class _Run:
    """One computation, as the cache calls it."""

    def __init__(self, results: Results, question: Question, compute: Callable[[], Any]) -> None:
        self._results, self._question, self._compute = results, question, compute
        self._began = False
        self._made: list[Any] = []

    def __call__(self) -> str:
        self._began = True
        self._made = [self._compute()]
        return self._results.frozen(self._question, self._made[0])

    async def awaited(self) -> str:
        self._began = True
        self._made = [await self._compute()]
        return self._results.frozen(self._question, self._made[0])

    def told(self, look: Lookup, stored: Any, thaw: Callable[[str], Any]) -> Told:
        if self._made:  # the caller's own answer, whatever the cache made of it
            self._results.realm.computed()
            return Told(self._made[0], False, "" if look.make is not None else look.reason.value)
        return Told(thaw(str(stored)), True, "", look.saved)

    def despite(self, error: Exception, realm: Realm) -> Told | None:
        """What there is in spite of an error of the cache's; None = compute. Raises an error of the computation."""
        if self._made:
            return Told(self._made[0], False, "unstorable" if isinstance(error, _PassedError) else "failed")
        if self._began:
            raise error
        if isinstance(error, _PassedError):  # another caller's, who keeps it for himself
            return None
        realm.failed(f"went on without the cache: {type(error).__name__}")
        return None
