"""What processes of a load are told, and what they tell: lines of JSON, in pipes that nobody else can read."""

from __future__ import annotations

import msgspec

from mmcache.lab.load.counts import Checked, Counts, Lost
from mmcache.lab.load.shape import Shape
from mmcache.settings import SharedSettings

PREFIX = "mmcache-load:"


class Job(msgspec.Struct, frozen=True):
    """A load; every process gets the same, and its number."""

    url: str
    """With a password where there is one: so it is on no command line."""
    qps: float
    """Requests a second that are to come, on the mean."""
    seconds: float
    keys: int
    sizes: dict[int, float]
    """Bytes of a block → share."""
    password: str | None = None
    prefix: str = PREFIX
    timeout_seconds: float = 0.5
    zipf: float = 0.9
    reads: float = 0.9
    """Share of requests, 0…1; the others write."""
    refill: bool = True
    """What is read and not there is written, as a cache does."""
    starts: tuple[float, ...] = (0.0,)
    factors: tuple[float, ...] = (1.0,)
    live_seconds: float | None = None
    """After which a block ends; None = never."""
    seed: int = 0
    run: int = 0
    """Tells loads apart that are on one cluster at once: each would take the other's writes for wrong answers."""
    processes: int = 1
    lanes: int = 4
    """Threads of each process that ask side by side."""
    check: bool = True
    """Read all that was written, at the end."""
    clean: bool = False
    """Then remove it."""

    def __repr__(self) -> str:
        """Without the URL and the password."""
        return f"Job({self.qps:g} a second for {self.seconds:g} s, {self.keys} keys)"

    @property
    def shape(self) -> Shape:
        """When requests come."""
        return Shape(self.starts, self.factors)

    @property
    def settings(self) -> SharedSettings:
        """Of the tier."""
        return SharedSettings(
            self.url, password=self.password, prefix=self.prefix, timeout_seconds=self.timeout_seconds
        )


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The first line to a process."""

    job: Job
    index: int


class Go(msgspec.Struct, frozen=True, tag="go"):
    """All have filled: begin then."""

    at: float
    """`time.monotonic`, which all processes of a machine share."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End at once, and say what there was; the end of the pipe means it, too."""

    check: bool = False
    """Whether what was written is still to be looked at."""


class Filled(msgspec.Struct, frozen=True, tag="filled"):
    """So many more keys are written, before it begins."""

    keys: int
    refused: int
    why: str = ""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """All are."""


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """Of one lane in one bin of time."""

    bin: int
    counts: Counts


class Told(msgspec.Struct, frozen=True, tag="told"):
    """The tier's own words, when something is wrong."""

    message: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The last line of a process."""

    processor_share: float
    """Of one core, while it asked."""
    unasked: int
    """Requests that were to come, and for which there was no time."""
    longest_silence: float
    """Seconds for which one key got no answer."""
    silence_ended: float
    """Then, `time.monotonic`."""
    lost: list[Lost]
    returned: int
    """Keys that were not to be found for a while, though their write was acknowledged, and came back as they were."""
    checked: Checked | None


Order = Start | Go | Stop
Message = Filled | Ready | Seen | Told | Ended
