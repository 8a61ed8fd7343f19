"""Signatures of weights on disk. A file's digest is remembered by its identity: device, inode, size and times."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from blake3 import blake3

from mmcache.keys.framing import framed
from mmcache.keys.signing.schema import schema_hash
from mmcache.model.errors import InvalidInputError, UnversionedModelError
from mmcache.model.signature import Signature

WEIGHTS = frozenset(
    {".safetensors", ".onnx", ".bin", ".pt", ".pth", ".gguf", ".npz", ".npy", ".tflite", ".engine", ".h5", ".ckpt"}
)
_NOT_MODEL = frozenset({".md", ".lock", ".tmp", ".incomplete"})
_SETTLED_SECONDS = 2.0
"""A file younger than this may change again within one tick of its clock, so its digest is not remembered."""

_Identity = tuple[int, int, int, int, int]
_known: dict[_Identity, str] = {}
_lock = threading.Lock()
_MOST_KNOWN = 4096
_CHUNK_BYTES = 4 << 20


def file_digest(path: Path) -> str:
    """32 hex digits of BLAKE3 of a file. Raises `InvalidInputError` for a file that is unreadable or being written."""
    try:
        status = path.stat()
        identity = _identity(status)
        known = _known.get(identity)
        if known is not None:
            return known
        found = _hashed(path)
        if _identity(path.stat()) != identity:
            raise InvalidInputError(f"{path} changed while it was read; sign it when it is complete")
    except OSError as error:
        raise InvalidInputError(f"cannot read the model file {path}: {error}") from error
    if time.time() - max(status.st_mtime, status.st_ctime) > _SETTLED_SECONDS:
        with _lock:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[identity] = found
    return found


def _hashed(path: Path) -> str:
    # read(), not mmap: a file that somebody truncates while it is mapped kills the process (SIGBUS).
    hasher, chunk = blake3(max_threads=blake3.AUTO), memoryview(bytearray(_CHUNK_BYTES))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(chunk):
            hasher.update(chunk[:count])
    return hasher.hexdigest()[:32]


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def describe_path(path: Path) -> Signature:
    """A weights file with its external data, or a folder of them with their configuration.

    Raises `InvalidInputError` for what is unreadable, `UnversionedModelError` for a folder without weights.
    """
    path = path.expanduser()
    if path.is_dir():
        return _describe_folder(path)
    if path.suffix != ".onnx":
        return Signature(model_version=f"file-{file_digest(path)}")
    schema, external = _onnx_graph(path)
    digest = _joined([(name, file_digest(path.parent / name)) for name in sorted({path.name, *external})], path.name)
    return Signature(model_version=f"onnx-{digest}", schema_hash=schema)


def _describe_folder(path: Path) -> Signature:
    found = sorted(
        file
        for file in path.rglob("*")
        if file.is_file()
        and file.suffix not in _NOT_MODEL
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if aliased := [file for file in path.rglob("*") if file.is_symlink() and file.is_dir()]:
        raise InvalidInputError(f"{aliased[0]} is a link to a folder, which is not followed; sign the folder itself")
    if not any(file.suffix in WEIGHTS for file in found):
        raise UnversionedModelError(f"{path} holds no weights ({', '.join(sorted(WEIGHTS))}); pass a version string")
    digest = _joined([(file.relative_to(path).as_posix(), file_digest(file)) for file in found], "")
    # A snapshot folder of the hub's cache is named after its commit.
    commit = f"{path.resolve().name} " if path.resolve().parent.name == "snapshots" else ""
    return Signature(model_version=f"{commit}folder-{digest}")


def _joined(files: list[tuple[str, str]], main: str) -> str:
    # The main file's own name is left out: a model that was renamed is the same model.
    parts = [framed("file", b"" if name == main else name.encode(), digest.encode()) for name, digest in files]
    return blake3(framed("files", *sorted(parts))).hexdigest()[:32]


def _onnx_graph(path: Path) -> tuple[str, set[str]]:
    """Schema hash and the names of external data files; without the onnx package "", and those that it mentions."""
    try:
        import onnx
        from onnx.external_data_helper import ExternalDataInfo, _get_all_tensors, uses_external_data
    except ImportError:
        return "", _mentioned(path)
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model(str(path), load_external_data=False)
    except (DecodeError, OSError) as error:
        raise InvalidInputError(f"{path} is not a readable ONNX file: {error}") from error
    external = {ExternalDataInfo(t).location for t in _get_all_tensors(model) if uses_external_data(t)}
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in stored]
    return schema_hash({"inputs": _values(inputs), "outputs": _values(model.graph.output)}), external


def _mentioned(path: Path) -> set[str]:
    """Files beside `path`, or one folder below, whose name stands in it: external data is named there in full."""
    try:
        raw = path.read_bytes()
        beside = [file for pattern in ("*", "*/*") for file in path.parent.glob(pattern) if file.is_file()]
    except OSError as error:
        raise InvalidInputError(f"cannot read the model file {path}: {error}") from error
    names = {file.relative_to(path.parent).as_posix() for file in beside} - {path.name}
    return {name for name in names if os.fsencode(name) in raw}


def _values(values: Any) -> dict[str, Any]:
    import onnx

    return {
        value.name: {
            "type": onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type),
            "shape": [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim],
        }
        for value in values
    }


def is_session(model: Any) -> bool:
    """Whether it is an `onnxruntime.InferenceSession`."""
    runtime = sys.modules.get("onnxruntime")
    return runtime is not None and isinstance(model, runtime.InferenceSession)


def describe_session(session: Any) -> Signature:
    """The file that a session was made from, the runtime's version, and its providers with their options as device.

    What session options change (graph optimisation) cannot be seen: give such sessions a `version` of their own.
    """
    path = getattr(session, "_model_path", None)
    if not path:
        raise UnversionedModelError("this session was made from bytes; sign the Path of its file, or pass a version")
    found = describe_path(Path(path))
    runtime = sys.modules["onnxruntime"].__version__
    providers = [name.removesuffix("ExecutionProvider") for name in session.get_providers()]
    given = {name: value for name, value in session.get_provider_options().items() if value}
    options = f" {blake3(json.dumps(given, sort_keys=True).encode()).hexdigest()[:32]}" if given else ""
    return Signature(
        model_version=f"{found.model_version} onnxruntime-{runtime}",
        schema_hash=found.schema_hash,
        device="+".join(providers) + options,
    )
