"""`describe`: a model → its `Signature`. `Signature.of(model)` calls it.

Whatever can change the output must change the signature: weights and buffers by content, configuration, mode
(train or eval), dtypes, adapters, preprocessing, tokenizer. A signature is taken when it is made: after training,
loading an adapter, or editing a configuration, make a new one.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from blake3 import blake3

from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.signing import files, modules, processors
from mmcache.keys.signing.schema import schema_hash
from mmcache.model.errors import InvalidInputError, UnversionedModelError
from mmcache.model.signature import Signature

__all__ = ["Signature", "describe", "schema_hash"]

_FIELDS = tuple(field.name for field in dataclasses.fields(Signature))


def describe(model: Any, *, version: str | None = None, schema: Any = None, **fields: str) -> Signature:
    """The signature of what computes an artifact.

    | model | identified by |
    |---|---|
    | a string | itself: an explicit version |
    | `torch.nn.Module`, also of transformers | weights, buffers, attributes, hooks, `forward`'s code, configuration |
    | bound method of one | that, and the method's name |
    | transformers processor, tokenizer; `tokenizers.Tokenizer` | its configuration and vocabulary |
    | `(model, processor)` | both |
    | `Path` of a weights file or folder (ONNX, safetensors…) | its bytes, external data included |
    | `onnxruntime.InferenceSession` of a file | that file, and the providers |
    | function, `functools.partial`, callable object | its name, bound arguments and `version`, which you must give |
    | pydantic class, OpenAPI or JSON schema (dict, `Path`) | `schema_hash` and `version`, which you must give |

    `version` is added to what was found. `schema` fills `schema_hash` (see there); `fields` override single fields.
    Raises `UnversionedModelError` where nothing identifies the weights, `InvalidInputError` for unreadable files.
    """
    found = _describe(model, version)
    if version is not None and found.model_version != version:
        found = replace(found, model_version=f"{version} {found.model_version}".strip())
    if schema is not None:
        found = replace(found, schema_hash=schema_hash(schema))
    try:
        return replace(found, **fields)
    except TypeError as error:
        known = ", ".join(_FIELDS)
        raise UnversionedModelError(f"a signature has the fields {known}; got {', '.join(fields)}") from error


def _describe(model: Any, version: str | None) -> Signature:
    if isinstance(model, Signature):
        return model
    if isinstance(model, str):
        if not model:
            raise UnversionedModelError("an empty string identifies no model; pass e.g. 'my-model 1.0'")
        return Signature(model_version=model)
    if isinstance(model, tuple):
        return _merged([_describe(part, version) for part in model])
    if isinstance(model, os.PathLike):
        return _of_path(Path(model), version)
    if modules.is_module(model):
        return modules.describe_module(model)
    if files.is_session(model):
        return files.describe_session(model)
    if processors.is_processor(model):
        return processors.describe_processor(model)
    if isinstance(model, Mapping) or hasattr(model, "model_json_schema"):
        return Signature(schema_hash=schema_hash(model), model_version=_given(version, "a schema"))
    owner = getattr(model, "__self__", None)
    if inspect.ismethod(model) and modules.is_module(owner):
        return replace(modules.describe_module(owner), function=model.__func__.__qualname__)
    if callable(model):
        return _of_callable(model, version)
    raise UnversionedModelError(
        f"a {type(model).__qualname__} has no signature; pass a version string, a torch module, a Path of a weights "
        "file, or a callable with version='…'"
    )


def _of_path(path: Path, version: str | None) -> Signature:
    if path.suffix in (".yaml", ".yml", ".json") and path.is_file():
        return Signature(schema_hash=schema_hash(path), model_version=_given(version, "a schema"))
    return files.describe_path(path)


def _of_callable(model: Callable[..., Any], version: str | None) -> Signature:
    if isinstance(model, functools.partial):
        inner = _describe(model.func, version)
        try:
            bound = canonical_arguments(model.args, model.keywords)
        except InvalidInputError as error:
            raise UnversionedModelError(f"this partial binds what has no canonical bytes: {error}") from error
        return replace(inner, function=f"{inner.function}({blake3(bound).hexdigest()[:32]})")
    name = function_name(model)
    return Signature(model_version=_given(version, name), function=name)


def function_name(function: Callable[..., Any]) -> str:
    """Module and qualified name; for a lambda also where it stands, since all of a scope have one name."""
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{getattr(named, '__module__', '')}.{named.__qualname__}"
    code = getattr(function, "__code__", None)
    return f"{name}:{code.co_firstlineno}" if code is not None and "<lambda>" in name else name


def _given(version: str | None, what: str) -> str:
    if not version:
        raise UnversionedModelError(
            f"nothing says which version of the model {what} is: pass signature='name 1.0', or "
            "Signature.of(function, version='1.0'), and change it whenever the output may change; a torch module, a "
            "(model, processor) pair or the Path of a weights file needs none"
        )
    return version


def _merged(parts: list[Signature]) -> Signature:
    """One signature of several parts: fields that more than one part fills are joined in order."""
    if not parts:
        raise UnversionedModelError("an empty tuple identifies no model")
    fields = {name: " + ".join(filter(None, (getattr(part, name) for part in parts))) for name in _FIELDS}
    return Signature(**fields)


Signature.describe = staticmethod(describe)
