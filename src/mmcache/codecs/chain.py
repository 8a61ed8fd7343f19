"""`Chain`: codecs in a row, checked by their specs before any byte moves."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from mmcache import plugins
from mmcache.codecs.base import Codec, Params
from mmcache.codecs.raw import Raw
from mmcache.model.block import ArraySpec, BytesSpec, Spec
from mmcache.model.errors import CodecError
from mmcache.model.frame import Buffer, CodecStep

Array = npt.NDArray[np.generic]
AnyCodec = Codec[Any, Any]
Part: TypeAlias = Union[str, AnyCodec, "Chain"]
CodecSetting: TypeAlias = Part | Mapping[str, Part]
"""`"raw"`, `"fp16"`, `"int4+zstd"`, `"fp16:scale=0.92"`, a codec, a chain, or one of these per modality."""

MAX_STEPS = 8
"""Steps that one leaf may have taken."""
_RAW = CodecStep(Raw.name, {})
_PROBE = ArraySpec("<f4", (1024, 64))
_log = logging.getLogger("mmcache.codecs")


class Encoded(NamedTuple):
    """A leaf at rest: its bytes and the steps that made them (none = the array's own bytes)."""

    data: Buffer
    steps: tuple[CodecStep, ...]


class Chain:
    """array→array and array→bytes steps, then bytes→bytes steps (compression, encryption).

    The former may lose; they touch float arrays only, and only those that they fit. The latter touch every leaf.
    Raises `CodecError` when a step cannot follow the one before it.
    """

    def __init__(self, *codecs: AnyCodec) -> None:
        spec: Spec = _PROBE
        transforms: list[AnyCodec] = []
        packers: list[AnyCodec] = []
        for codec in codecs:
            (transforms if isinstance(spec, ArraySpec) else packers).append(codec)
            if isinstance(spec, ArraySpec) and getattr(codec, "packs_bytes", False):
                spec = Raw().out_spec(spec)
                packers.append(transforms.pop())
            spec = codec.out_spec(spec)
        self.transforms = tuple(codec for codec in transforms if codec.name != Raw.name)
        self.packers = tuple(packers)
        self._least_elements = max((getattr(codec, "least_elements", 0) for codec in transforms), default=0)
        self.seals = any(getattr(codec, "seals", False) for codec in packers)
        """Whether it encrypts: then the skeleton is encoded too, not only the leaves."""

    @property
    def codecs(self) -> tuple[AnyCodec, ...]:
        """All steps that do something, in order."""
        return self.transforms + self.packers

    @property
    def lossy_label(self) -> str:
        """The lossy steps and their parameters; empty when values come back bit-exact. Part of signatures."""
        return "+".join(_label(codec) for codec in self.transforms if not codec.lossless)

    def __repr__(self) -> str:
        return f"Chain({'+'.join(map(_label, self.codecs)) or 'raw'})"

    def encode(self, array: Array, *, lossy: bool, context: bytes) -> Encoded:
        """Encode a leaf. Steps that do not fit it or do not make it smaller are left out.

        `lossy`: whether values may change (floats that the caller gets back as an array). `context` is what
        ciphers bind the bytes to.
        """
        data: Any = array
        plain = ArraySpec.of(array)
        spec: Spec = plain
        steps: tuple[CodecStep, ...] = ()
        if lossy and self.transforms:
            data, spec, steps = self._transform(array, plain)
        if isinstance(spec, ArraySpec):
            data = Raw().encode(data, spec)
            if self.packers:
                spec, steps = Raw().out_spec(spec), (*steps, _RAW)
        for packer in self.packers:
            assert isinstance(spec, BytesSpec)
            codec = _bound(packer, context)
            packed = codec.encode(data, spec)
            if getattr(packer, "optional", False) and len(packed) >= _size(data):
                continue
            data, spec, steps = packed, codec.out_spec(spec), (*steps, CodecStep(codec.name, codec.params))
        return Encoded(data, () if steps == (_RAW,) else steps)

    def _transform(self, array: Array, plain: ArraySpec) -> tuple[Any, Spec, tuple[CodecStep, ...]]:
        data: Any = array
        spec: Spec = plain
        if array.size < self._least_elements:
            return array, plain, ()
        try:
            for codec in self.transforms:
                data, spec = codec.encode(data, spec), codec.out_spec(spec)
        except CodecError as error:
            _log.info("an array of %s %s is kept raw: %s", array.dtype, array.shape, error)
            return array, plain, ()
        if _size(data) >= array.nbytes:
            return array, plain, ()
        return data, spec, tuple(CodecStep(codec.name, codec.params) for codec in self.transforms)


class Recipe:
    """The way back for one stored leaf. Everything is bounded before a byte is decoded.

    Raises `CodecError` when the steps are unknown or do not fit the spec or the length.
    """

    def __init__(self, spec: ArraySpec, steps: Sequence[CodecStep], length: int, context: bytes) -> None:
        if len(steps) > MAX_STEPS:
            raise CodecError(f"a stored leaf has {len(steps)} steps; at most {MAX_STEPS} are allowed")
        self._codecs = [_bound(_rebuilt(step.name, tuple(sorted(step.params.items()))), context) for step in steps]
        self._specs: list[Spec] = [spec]
        for codec in self._codecs:
            self._specs.append(codec.out_spec(self._specs[-1]))
        last = self._specs[-1]
        if length > (last.nbytes if isinstance(last, ArraySpec) else last.max_bytes):
            raise CodecError("a stored leaf is longer than its steps can have made it")
        self.decoded_bytes = max(s.nbytes if isinstance(s, ArraySpec) else s.max_bytes for s in self._specs)
        """The most bytes that any step of decoding holds."""

    def decode(self, data: Buffer) -> Array:
        """The array, read-only. Raises `CodecError`."""
        value: Any = Raw().decode(data, self._specs[-1]) if isinstance(self._specs[-1], ArraySpec) else data
        for codec, spec in zip(reversed(self._codecs), reversed(self._specs[:-1]), strict=True):
            try:
                value = codec.decode(value, spec)
            except CodecError:
                raise
            except (ValueError, TypeError, OverflowError) as error:  # a plug-in that trusted its input
                raise CodecError(f"{codec.name} cannot decode a stored leaf: {error}") from error
        value.flags.writeable = False  # like raw leaves: what works with one chain works with all
        return value  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def _rebuilt(name: str, params: tuple[tuple[str, bool | int | float | str], ...]) -> AnyCodec:
    try:
        codec: AnyCodec = plugins.load("codecs", name)(**dict(params))
    except (TypeError, ValueError, OverflowError) as error:  # UnknownPluginError is a ValueError
        raise CodecError(f"a stored leaf needs the codec {name!r} with {dict(params)}: {error}") from error
    if codec.params != dict(params):  # e.g. an argument that is for encoders only
        raise CodecError(f"the codec {name!r} does not store the parameters {dict(params)}")
    return codec


def _bound(codec: AnyCodec, context: bytes) -> AnyCodec:
    bind = getattr(codec, "bound_to", None)
    return codec if bind is None else bind(context)


def _size(data: Any) -> int:
    return int(data.nbytes) if isinstance(data, np.ndarray) else memoryview(data).nbytes


def _label(codec: AnyCodec) -> str:
    params = ",".join(f"{k}={v}" for k, v in sorted(codec.params.items()))
    return f"{codec.name}:{params}" if params else codec.name


PRESETS: dict[str, dict[str, str]] = {
    "auto-vision": {"image": "int4:group=64", "video": "int4:group=64"},
    "auto": {"image": "int4:group=64", "video": "int4:group=64", "text": "fp16", "audio": "fp16:scale=0.92"},
}
"""Settings by name. Vision INT4 with a scale for every 64 tokens (it loses less than one scale a channel: table
`codec`), text FP16, audio FP16 with scale 0.92; whatever is not named stays raw."""


def choose(modality: str, setting: CodecSetting) -> Chain:
    """The chain of a modality. Names are plug-ins of kind `codecs`; modalities that a dict lacks stay raw.

    Raises `UnknownPluginError` naming what there is, `CodecError` when the steps do not fit each other.
    """
    if isinstance(setting, str):
        setting = PRESETS.get(setting, setting)
    if isinstance(setting, Mapping):
        setting = setting.get(modality, "raw")
    if isinstance(setting, Chain):
        return setting
    if isinstance(setting, str):
        return Chain(*map(_parsed, setting.split("+")))
    return Chain(setting)


def _parsed(text: str) -> AnyCodec:
    name, _, options = text.strip().partition(":")
    params: Params = {}
    for option in filter(None, options.split(",")):
        key, _, number = option.partition("=")
        params[key.strip()] = _scalar(number.strip())
    codec = plugins.load("codecs", name)
    try:
        return codec(**params)  # type: ignore[no-any-return]
    except TypeError as error:
        raise CodecError(f"cannot make the codec {text!r}: {error}") from error


def _scalar(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
