"""`Codec`: one typed step from array towards bytes. Sync and pure; the spec is checked before any byte moves."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeVar, runtime_checkable

from mmcache.model.block import Spec

In = TypeVar("In")
Out = TypeVar("Out")

Params = dict[str, bool | int | float | str]


@runtime_checkable
class Codec(Protocol[In, Out]):
    """array→array, array→bytes or bytes→bytes. `decode` gets the spec that `encode` got.

    A codec may also have: `packs_bytes = True` (bytes→bytes), `optional = True` (left out where it does not shrink),
    `least_elements` (smaller arrays stay exact), `seals = True` (it encrypts, so the skeleton goes through it too) and
    `bound_to(context)`, a copy of itself whose bytes only decode in that place.
    """

    name: ClassVar[str]
    """The registered name, as it stands in frame headers."""
    lossless: ClassVar[bool]

    @property
    def params(self) -> Params:
        """What rebuilds this codec: `type(codec)(**codec.params)`."""

    def out_spec(self, spec: Spec) -> Spec:
        """The spec of the encoded form. Raises `CodecError` when `spec` cannot be encoded."""

    def encode(self, data: In, spec: Spec) -> Out:
        """Encode; `data` has `spec`."""

    def decode(self, data: Out, spec: Spec) -> In:
        """The inverse. Raises `CodecError`; never allocates beyond `spec`'s bound."""
