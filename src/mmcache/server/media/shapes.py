"""The media parts of OpenAI's protocol, and of vLLM's: where the body stands, and what else may change an answer. Pure.

| `type` | body | besides |
|---|---|---|
| `image_url` | `image_url`: `{url, detail}` or the address itself | |
| `input_image` | `image_url`: the address | `detail`, `file_id` |
| `audio_url`, `video_url` | `{url}` or the address itself | |
| `input_audio` | `{data, format}` | |
| `file` | `{file_data, filename}` or `{file_id}` | |
| `input_file` | `file_data` | `filename`, `file_id`, `file_url` |
| `image_embeds`, `audio_embeds`, `video_embeds` | base64, or base64 and numbers by name | |

and `uuid`, which is never believed. A field that is not listed makes the part unknown: nobody can say what it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["image", "audio", "video", "file", "embeds"]
Part = Mapping[str, Any]


class UnknownPartError(ValueError):
    """Nobody can say what the model will see; `reason` is the bypass's. Caught in this room."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Shape:
    """A part, taken apart."""

    kind: Kind
    body: str | Mapping[str, Any]
    """An address, base64, or embeddings."""
    form: Literal["url", "base64", "tensors"]
    put: Callable[[str], dict[str, Any]]
    """The part with another body, and without its uuid."""
    named: bool
    """Whether a uuid was given."""
    labels: tuple[str, ...] = field(default=())
    """What else may change an answer: `detail`, `format`, the file's name."""


def shape(part: Part) -> Shape:
    """Take `part` apart. Raises `UnknownPartError`."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None or not isinstance(part.get("uuid"), str | None):
        raise UnknownPartError("unknown-part")
    return reader(part)


def _only(given: Mapping[str, Any], *known: str) -> None:
    if given.keys() - {*known}:
        raise UnknownPartError("unknown-part")


def _text(value: object, *, largest: int | None = 200) -> str:
    """A string that is there."""
    if not isinstance(value, str) or (largest is not None and len(value) > largest):
        raise UnknownPartError("unknown-part")
    return value


def _detail(given: Part) -> str:
    """How closely it is looked at; left out is `auto`."""
    return "auto" if given.get("detail") is None else _text(given["detail"])


def _body(value: object) -> str:
    if value is None or value == "":
        raise UnknownPartError("uuid-without-body")
    return _text(value, largest=None)


def _address(kind: Kind, name: str, *, details: bool = False) -> Callable[[Part], Shape]:
    def read(part: Part) -> Shape:
        _only(part, "type", name, "uuid")
        given, labels = part.get(name), ("auto",) if details else ()
        if not isinstance(given, Mapping):
            return Shape(kind, _body(given), "url", lambda url: {"type": name, name: url}, "uuid" in part, labels)
        _only(given, "url", *(["detail"] if details else []))
        if details:
            labels = (_detail(given),)
        rest = {key: value for key, value in given.items() if key != "url"}
        put = lambda url: {"type": name, name: {"url": url, **rest}}  # noqa: E731
        return Shape(kind, _body(given.get("url")), "url", put, "uuid" in part, labels)

    return read


def _input_image(part: Part) -> Shape:
    _only(part, "type", "image_url", "detail", "file_id", "uuid")
    _no_file_id(part)
    rest = {key: value for key, value in part.items() if key not in ("image_url", "uuid")}
    labels = (_detail(part),)
    put = lambda url: {**rest, "image_url": url}  # noqa: E731
    return Shape("image", _body(part.get("image_url")), "url", put, "uuid" in part, labels)


def _input_audio(part: Part) -> Shape:
    _only(part, "type", "input_audio", "uuid")
    given = part.get("input_audio")
    if given is None or given == {}:
        raise UnknownPartError("uuid-without-body")
    if not isinstance(given, Mapping):
        raise UnknownPartError("unknown-part")
    _only(given, "data", "format")
    called = _text(given.get("format"))
    put = lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": called}}  # noqa: E731
    return Shape("audio", _body(given.get("data")), "base64", put, "uuid" in part, ("format", called))


def _file(part: Part) -> Shape:
    _only(part, "type", "file", "uuid")
    given = part.get("file")
    if not isinstance(given, Mapping):
        raise UnknownPartError("unknown-part")
    _only(given, "file_data", "filename", "file_id")
    return _file_shape(given, lambda rest, data: {"type": "file", "file": {**rest, "file_data": data}}, "uuid" in part)


def _input_file(part: Part) -> Shape:
    _only(part, "type", "file_data", "filename", "file_id", "file_url", "uuid")
    if part.get("file_url") is not None:
        raise UnknownPartError("remote-media")
    return _file_shape(part, lambda rest, data: {**rest, "file_data": data}, "uuid" in part)


def _file_shape(given: Part, put: Callable[[dict[str, Any], str], dict[str, Any]], named: bool) -> Shape:
    _no_file_id(given)
    rest = {key: value for key, value in given.items() if key not in ("file_data", "uuid")}
    name = given.get("filename")
    labels = () if name is None else ("filename", _text(name, largest=1000))
    data = _body(given.get("file_data"))
    form: Literal["url", "base64"] = "url" if data[:5].lower() == "data:" else "base64"
    return Shape("file", data, form, lambda new: put(rest, new), named, labels)


def _no_file_id(given: Part) -> None:
    if given.get("file_id") is not None:
        raise UnknownPartError("file-id")  # what it names may be replaced or deleted


def _embeds(name: str) -> Callable[[Part], Shape]:
    def read(part: Part) -> Shape:
        _only(part, "type", name, "uuid")
        given = part.get(name)
        if not isinstance(given, Mapping):
            given = _body(given)
        elif not given:
            raise UnknownPartError("uuid-without-body")
        return Shape("embeds", given, "tensors", lambda _: {"type": name, name: given}, "uuid" in part, (name,))

    return read


_READERS: dict[str, Callable[[Part], Shape]] = {
    "image_url": _address("image", "image_url", details=True),
    "input_image": _input_image,
    "audio_url": _address("audio", "audio_url"),
    "video_url": _address("video", "video_url"),
    "input_audio": _input_audio,
    "file": _file,
    "input_file": _input_file,
    "image_embeds": _embeds("image_embeds"),
    "audio_embeds": _embeds("audio_embeds"),
    "video_embeds": _embeds("video_embeds"),
}
