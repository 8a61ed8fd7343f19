"""Which model is it? The signature of a component: its class, and what its own `to_dict` says, without secrets."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from blake3 import blake3
from haystack.core.serialization import component_to_dict

from mmcache.keys.signing import Signature
from mmcache.model.errors import UnversionedModelError

PERFORMANCE = {
    "api_key", "token", "batch_size", "progress_bar", "device", "timeout", "max_retries", "raise_on_failure",
    "max_workers", "http_client_kwargs", "streaming_callback",
}  # fmt: skip
"""Parameters of components that change how fast, for whom or how loudly a result is made, not which."""
MODELS = {"model", "model_name", "model_id", "model_name_or_path", "azure_deployment", "deployment", "repo_id"}
_CHOOSING = {"headers", "params", "base_url", "auth", "cookies", "transport", "mounts", "event_hooks"}
"""What of `http_client_kwargs` might choose another model at the other end."""


class Signed:
    """The signature of what a component computes, made anew when it was reconfigured.

    given: names its version. versioned: something else (an index's version) says which state it answers from, so it
    need not name a model. Raises `UnversionedModelError` where nothing says which model it is.
    """

    def __init__(self, component: Any, given: str | None, *, modality: str, versioned: bool = False) -> None:
        if given is not None and (not isinstance(given, str) or not given):
            raise UnversionedModelError(f"signature is a version string that is not empty, not {given!r:.60}")
        cls = type(component)
        self._name = f"{cls.__module__}.{cls.__qualname__}"
        self._component, self._given, self._modality, self._versioned = component, given, modality, versioned
        self._hidden = False
        self.parameters = self._look(first=True)
        """The component's own init parameters; None where they cannot be told."""
        self._hidden = self.parameters is None
        self._value = self._sign()

    def now(self) -> Signature:
        """Raises `UnversionedModelError`, as when it was made."""
        found = None if self._hidden else self._look()
        if found != self.parameters:
            self.parameters = found
            self._value = self._sign()
        return self._value

    def _look(self, *, first: bool = False) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = component_to_dict(self._component, self._name).get("init_parameters", {})
            if first and (untold := _untold(self._component, found)) is not None:
                raise UnversionedModelError(f"nobody can tell its parameter {untold!r}")
            return found
        except Exception as error:
            if self._given is None:
                raise UnversionedModelError(
                    f"{self._name} cannot be serialised ({error}), so nothing says what it computes: pass "
                    "signature='name 1.0'"
                ) from error
            return None

    def _sign(self) -> Signature:
        if self.parameters is None:
            return Signature(model_version=str(self._given), function=self._name, modality=self._modality)
        models: list[str] = []
        kept = _parameters(self.parameters, models)
        if self._given is None:
            self._check(models)
        digest = blake3(json.dumps(kept, sort_keys=True, default=_refuse).encode()).hexdigest(length=16)
        version = " + ".join(filter(None, [self._given, *map(_weights, models)]))
        return Signature(model_version=version, function=self._name, preprocess=digest, modality=self._modality)

    def _check(self, models: list[str]) -> None:
        if not models and not self._versioned:
            raise UnversionedModelError(
                f"nothing in {self._name} names a model: pass signature='name 1.0', and change it whenever its output "
                "may"
            )
        told = (self.parameters or {}).get("http_client_kwargs")
        if choosing := _CHOOSING & (told if isinstance(told, dict) else {}).keys():
            raise UnversionedModelError(
                f"{self._name} has http_client_kwargs ({', '.join(sorted(choosing))}) that may choose another model: "
                "pass signature='name 1.0'"
            )


def _untold(component: Any, told: dict[str, Any]) -> str | None:
    """A parameter whose value is not in `told`: a `to_dict` that was inherited may know nothing of it, and without a
    `to_dict`, Haystack takes its default where the component has no attribute of that name."""
    parameters = inspect.signature(type(component).__init__).parameters.values()
    names = [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)][1:]
    own = hasattr(component, "to_dict")
    return next(
        (n for n in names if n not in PERFORMANCE and (n not in told if own else not hasattr(component, n))), None
    )


def _parameters(parameters: dict[str, Any], models: list[str]) -> dict[str, Any]:
    """Init parameters of a component without what changes no result. Names of models go to `models` as well."""
    return {str(name): _kept(part, models, str(name)) for name, part in parameters.items() if name not in PERFORMANCE}


def _kept(value: Any, models: list[str], name: str = "") -> Any:
    """`value` without secrets; below `init_parameters`, as above."""
    if isinstance(value, dict):
        if value.get("type") in ("env_var", "token"):
            return None
        if "type" in value and isinstance(nested := value.get("init_parameters"), dict):
            return {"type": value["type"], "init_parameters": _parameters(nested, models)}
        return {str(name): _kept(part, models, str(name)) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_kept(part, models) for part in value]
    if isinstance(value, set):
        return sorted(map(repr, value))
    if name in MODELS and isinstance(value, str) and value:
        models.append(value)
    return value


def _weights(model: str) -> str:
    """A model in a folder or file of this machine counts by its bytes: they may change under one name."""
    try:
        path = Path(model).expanduser()
        return Signature.of(path).model_version if path.exists() else model
    except (OSError, ValueError, RuntimeError, UnversionedModelError):  # no path, or none of weights
        return model


def _refuse(value: object) -> object:
    raise UnversionedModelError(f"a {type(value).__name__} in a component's parameters has no canonical form")
