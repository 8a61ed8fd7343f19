"""Which model is it? The signature of a component: its class, and what its own `to_dict` says, without secrets."""

from __future__ import annotations

import functools
import inspect
import json
from copy import deepcopy
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

from blake3 import blake3
from haystack.core.serialization import component_to_dict
from haystack.utils import Secret

from mmcache.integrations.framework.code import written
from mmcache.integrations.framework.described import described, served
from mmcache.integrations.framework.signing import check_alone, weights
from mmcache.keys.framing import framed
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
_PLAIN = str, int, float, bool, list, dict, set, tuple, type(None), Secret


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
        self._secrets: list[Secret] = []
        self.parameters, self._code = self._look()
        """The component's own init parameters, as far as they can be told."""
        self._value = self._sign()

    def now(self) -> Signature:
        """Without what only secrets say. Raises `UnversionedModelError`, as when it was made."""
        found, code = self._look()
        if found != self.parameters or code != self._code:
            self.parameters, self._code = found, code
            self._value = self._sign()
        return self._value

    def sealed(self, salt: bytes) -> Signature:
        """The same with what its secrets are (a store's address, say, but not API keys), hashed with this salt."""
        signature = self.now()
        if not self._secrets:
            return signature
        held = blake3(framed("secrets", *map(_resolved, self._secrets)), key=salt).hexdigest(length=16)
        return replace(signature, preprocess=f"{signature.preprocess} {held}")

    def _look(self) -> tuple[dict[str, Any], list[str]]:
        try:
            told: dict[str, Any] = component_to_dict(self._component, self._name).get("init_parameters", {})
            untold = _untold(self._component, told)
            if untold and self._given is None:
                raise UnversionedModelError(f"nobody can tell its parameter {untold[0]!r}")
            return deepcopy({name: part for name, part in told.items() if name not in untold}), self._own()
        except Exception as error:
            if self._given is None:
                raise UnversionedModelError(
                    f"{self._name} cannot be serialised ({error}), so nothing says what it computes: pass "
                    "signature='name 1.0'"
                ) from error
            return _attributes(self._component), self._own()

    def _own(self) -> list[str]:
        """What no parameter says: code of somebody's own, also put in place of a method, and who is asked."""
        held = dict(vars(self._component))
        functions = {
            name: getattr(part, "__func__", part) if getattr(part, "__self__", None) is self._component else part
            for name, part in sorted(held.items())
            if isinstance(part, FunctionType | MethodType | functools.partial) and name not in PERFORMANCE
        }
        told = [f"{name} {_text(part)}" for name, part in functions.items()]
        return list(filter(None, [written(type(self._component)), *told, *served(held)]))

    def _sign(self) -> Signature:
        models: list[str] = []
        self._secrets = []
        kept = _parameters(self.parameters, models, self._secrets)
        if self._modality == "document":
            check_alone(self._component)
        if self._given is None:
            self._check(models)
        told = json.dumps([kept, *self._code], sort_keys=True, default=_refuse)
        version = " + ".join(filter(None, [self._given, *(f"{model} {weights(model)}".strip() for model in models)]))
        digest = blake3(told.encode()).hexdigest(length=16)
        return Signature(model_version=version, function=self._name, preprocess=digest, modality=self._modality)

    def _check(self, models: list[str]) -> None:
        if not models and not self._versioned:
            raise UnversionedModelError(
                f"nothing in {self._name} names a model: pass signature='name 1.0', and change it whenever its output "
                "may"
            )
        told = self.parameters.get("http_client_kwargs")
        if choosing := _CHOOSING & (told if isinstance(told, dict) else {}).keys():
            raise UnversionedModelError(
                f"{self._name} has http_client_kwargs ({', '.join(sorted(choosing))}) that may choose another model: "
                "pass signature='name 1.0'"
            )


def _untold(component: Any, told: dict[str, Any]) -> list[str]:
    """Parameters whose value is not in `told`: a `to_dict` that was inherited may know nothing of them, and without a
    `to_dict`, Haystack takes the default where the component has no attribute of that name, and none of `**others`."""
    made = type(component).__init__
    parameters = {} if made is object.__init__ else inspect.signature(made).parameters
    open_ended = {n for n, one in parameters.items() if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    own = hasattr(component, "to_dict")
    if own:
        return [n for n in list(parameters)[1:] if n not in told and n not in PERFORMANCE | open_ended]
    return [n for n in list(parameters)[1:] if n not in PERFORMANCE and (n in open_ended or not hasattr(component, n))]


def _attributes(component: Any) -> dict[str, Any]:
    """Init parameters of a component that cannot be serialised, as far as attributes of their names show them."""
    names = [name for name in inspect.signature(type(component).__init__).parameters if hasattr(component, name)]
    values = {name: getattr(component, name) for name in names if name not in PERFORMANCE}
    return {name: _copied(one) if isinstance(one, _PLAIN) else _text(one) for name, one in values.items()}


def _copied(value: Any) -> Any:
    try:
        return deepcopy(value)
    except Exception:  # noqa: BLE001 - it holds an object that refuses
        return _text(value)


def _text(value: Any) -> str:
    try:
        return described(value, releases=False)
    except UnversionedModelError:  # too large; the version that was given says which it is
        return f"{type(value).__module__}.{type(value).__qualname__}"


def _parameters(parameters: dict[str, Any], models: list[str], secrets: list[Secret]) -> dict[str, Any]:
    """Init parameters of a component without what changes no result. Names of models go to `models` as well."""
    kept = {str(name): part for name, part in parameters.items() if name not in PERFORMANCE}
    return {name: _kept(part, models, secrets, name) for name, part in kept.items()}


def _kept(value: Any, models: list[str], secrets: list[Secret], name: str = "") -> Any:
    """`value` without secrets, which go to `secrets`; below `init_parameters`, as above."""
    if isinstance(value, Secret) or (isinstance(value, dict) and value.get("type") in ("env_var", "token")):
        secrets.append(value if isinstance(value, Secret) else Secret.from_dict(value))
        return None
    if isinstance(value, dict):
        if "type" in value and isinstance(nested := value.get("init_parameters"), dict):
            return {"type": value["type"], "init_parameters": _parameters(nested, models, secrets)}
        return {str(name): _kept(part, models, secrets, str(name)) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_kept(part, models, secrets) for part in value]
    if isinstance(value, set):
        return sorted(map(repr, value))
    if name in MODELS and isinstance(value, str) and value:
        models.append(value)
    return value if isinstance(value, _PLAIN) else _text(value)


def _resolved(secret: Secret) -> bytes:
    try:
        return str(secret.resolve_value()).encode("utf-8", "surrogatepass")
    except ValueError:  # its variable is not set
        return b""


def _refuse(value: object) -> object:
    raise UnversionedModelError(f"a {type(value).__name__} in a component's parameters has no canonical form")
