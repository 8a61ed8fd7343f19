"""What the table `vllm` asks of each contender: the same pictures, under the same names, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from mmcache.lab.data.pictures import frames, portrait
from mmcache.lab.engines.process import Answer, Engine, Kind
from mmcache.model.errors import AssetError

CLOSE = 0.02
"""Largest difference of a log-probability between two computations of one answer."""
SIDE = 336
UNLISTED = 50.0
"""A larger difference says that a token is not among the likeliest of the other answer."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Pictures:
    """Real pictures as files. `copies`: the same pixels in another file, and a JPEG of other pixels."""

    files: tuple[Path, ...]
    bmp: Path
    jpeg: Path

    @staticmethod
    def make(folder: Path, count: int) -> Pictures:
        """A photograph, and frames of three videos far apart. Raises `AssetError`."""
        folder.mkdir(parents=True, exist_ok=True)
        clips = [frames("bikes", 0, None, 60), frames("bunny", 0, None, 40), frames("carphone", 0, None, 50)]
        with Image.open(portrait()) as opened:
            found = [opened.convert("RGB")]
        while len(found) < count:
            found += [next(clip) for clip in clips]
        files = []
        for number, picture in enumerate(found[:count]):
            files.append(folder / f"{number}.png")
            picture.resize((SIDE, SIDE)).save(files[-1])
        with Image.open(files[0]) as first:
            first.save(folder / "0.bmp")
            first.save(folder / "0.jpg", quality=60)
        return Pictures(tuple(files), folder / "0.bmp", folder / "0.jpg")


@dataclass
class Found:
    """What a contender did."""

    ms: dict[str, list[float]] = field(default_factory=dict)
    encoded: dict[str, list[int]] = field(default_factory=dict)
    """How often the vision tower ran, an entry a request."""
    wrong: dict[str, list[int]] = field(default_factory=dict)
    """1 where the answer is not what the model says to that picture."""
    outside: int = 0
    """Files and folders that it made outside of its folder."""
    died: list[str] = field(default_factory=list)
    """What engines said that ended by themselves; what they had still to do is missing."""
    shift: list[float] = field(default_factory=list)
    """How far log-probabilities of its loaded outputs are from right ones."""

    def note(self, scene: str, answer: Answer, right: Answer) -> None:
        """One request of `scene`."""
        self.ms.setdefault(scene, []).append(answer.ms)
        self.encoded.setdefault(scene, []).append(answer.encoded)
        apart = answer.differs(right)
        self.wrong.setdefault(scene, []).append(int(not apart < CLOSE))
        if apart < UNLISTED:
            self.shift.append(apart)


class Right:
    """What the model says, computed without any cache, when it is first asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[tuple[Path, str], Answer] = {}

    def __call__(self, picture: Path, text: str) -> Answer:
        """The right answer."""
        if (picture, text) not in self._known:
            self._known[picture, text] = self._engine.ask(picture, text)
        return self._known[picture, text]

    def check(self, pictures: Sequence[Path]) -> None:
        """Raises `AssetError` where the model says the same to two pictures: then nothing could be seen."""
        answers = [self(picture, "w0 <image> w0") for picture in pictures]
        for place, one in enumerate(answers):
            if any(one.differs(other) < 2 * CLOSE for other in answers[:place]):
                raise AssetError(f"the model cannot tell {pictures[place]} from those before")


class Scenes:
    """One contender's run. `say` is told what happens."""

    def __init__(self, kind: Kind, folder: Path, pictures: Pictures, right: Right, options: Mapping[str, Any]) -> None:
        self.found = Found()
        self._kind, self._folder, self._right, self._options = kind, folder, right, options
        self._pictures = pictures
        self._name = "-".join([kind, *map(str, options.values())])
        self._store = folder / f"around-{self._name}" / "store"
        self._words = 0
        self._launched: Engine | None = None

    def launch(self) -> None:
        """Let the next engine load already."""
        self._launched = self._engine().launch()

    def _engine(self) -> Engine:
        return Engine(self._kind, folder=self._folder, store=self._store, options=self._options)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """One engine on the contender's folder, warm: it has seen a picture that counts nowhere."""
        launched, self._launched = self._launched or self._engine(), None
        with launched as opened:
            opened.ask(self._pictures.files[-1], "w0 <image> w0")
            yield opened

    def _fresh(self) -> str:
        """A question that begins with another word each time, so that the prefix cache has nothing of it."""
        self._words += 1
        return f"w{self._words} <image> w2"

    def _ask(
        self,
        engine: Engine,
        scene: str,
        picture: Path,
        text: str | None = None,
        *,
        uuid: str | None = None,
        salt: str | None = None,
    ) -> None:
        text = text or self._fresh()
        self.found.note(scene, engine.ask(picture, text, uuid=uuid, salt=salt), self._right(picture, text))

    def first(self, engine: Engine) -> None:
        """Everything that one engine shows."""
        files = self._pictures.files[:-1]
        for picture in files:
            self._ask(engine, "cold", picture)
            self._ask(engine, "repeat", picture)
        for picture in files:
            self._ask(engine, "evicted", picture)  # the engine has room for one
        engine.flush()
        self._ask(engine, "bmp", files[0])
        self._ask(engine, "bmp", self._pictures.bmp)
        self._ask(engine, "jpeg", self._pictures.jpeg)
        self._ask(engine, "salt", files[0])
        for salt in ("one", "two"):
            self._ask(engine, "salt", files[0], salt=salt)
        self.uuids(engine)
        self._ask(engine, "outside", files[1], uuid="../outside/x")
        engine.flush()
        around = self._store.parent
        self.found.outside = sum(1 for path in around.rglob("*") if self._store not in (path, *path.parents))

    def uuids(self, engine: Engine) -> None:
        """Two pictures under one uuid: with the same question, with another, and the first again."""
        one, other = self._pictures.files[:2]
        self._ask(engine, "uuid", one, "w7 <image> w8", uuid="U")
        self._ask(engine, "uuid", other, "w7 <image> w8", uuid="U")
        self._ask(engine, "uuid", other, uuid="U")
        self._ask(engine, "uuid", one, uuid="U")

    def later(self, engine: Engine, scene: str) -> None:
        """What an engine finds that has encoded none of it."""
        for picture in self._pictures.files[:-1]:
            self._ask(engine, scene, picture)

    def drop(self) -> None:
        """End an engine that was launched and never used."""
        if self._launched is not None:
            self._launched.kill()

    def run(self, *, share: bool, restart: bool, say: Say) -> Found:
        """All scenes, as far as each engine lives. `share`: a second one beside the first; `restart`: another later."""
        say(f"{self._name}: one engine")
        with self._surviving(), self.engine() as first:
            self.first(first)
            if share:
                say(f"{self._name}: a second engine")
                with self.engine() as second:
                    self.later(second, "shared")
        if restart:
            say(f"{self._name}: restarted")
            with self._surviving(), self.engine() as again:
                self.later(again, "restarted")
                self._ask(again, "uuid restarted", self._pictures.files[1], uuid="U")
        return self.found

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except AssetError as error:
            self.found.died.append(str(error))


def lossy(folder: Path, pictures: Pictures, right: Right, at_rest: str) -> tuple[Found, dict[str, float]]:
    """Ours with a lossy codec: outputs stored by one engine and loaded by the next; and INT4's error by itself."""
    scenes = Scenes("ours", folder, pictures, right, {"at_rest": at_rest})
    with scenes.engine() as first:
        for picture in pictures.files[:-1]:
            scenes._ask(first, "cold", picture)
        error = first.at_rest()
        first.flush()
    scenes.found = Found()
    with scenes.engine() as again:
        scenes.later(again, "restarted")
    return scenes.found, error


def total(found: Mapping[str, Sequence[int]]) -> int:
    """Over all scenes."""
    return sum(map(sum, found.values()))
