"""Passwords and certificates, read from the Secrets that a resource names. They go to nodes only."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmcache.model.errors import KubernetesError, ScaleError
from mmcache.operator.api import SECRETS, Api
from mmcache.operator.resource import Wish

PREVIOUS = "previous"
"""The key of a password that nodes still take."""
_REFUSED = (400, 403, 422)


@dataclass(frozen=True)
class Secrets:
    """What nodes are talked to with. Its repr shows nothing."""

    password: str | None = field(default=None, repr=False)
    previous: str | None = field(default=None, repr=False)
    authority: str | None = field(default=None, repr=False)
    """The certificate that signed the nodes' ones, in PEM; None: no TLS."""

    def context(self) -> ssl.SSLContext | None:
        """Nodes are known by who signed them: a pod's address is in no certificate. Raises `ScaleError`."""
        if self.authority is None:
            return None
        try:
            context = ssl.create_default_context(cadata=self.authority)
        except (ssl.SSLError, ValueError) as error:
            raise ScaleError("ca.crt of the Secret for TLS is no certificate in PEM") from error
        context.check_hostname = False
        return context


def read(api: Api, wish: Wish) -> Secrets:
    """Raises `ScaleError`, with the Secret's name, where something is missing; `KubernetesError`."""
    password = previous = authority = None
    if wish.pods.auth is not None:
        name, key = wish.pods.auth
        data = _data(api, wish, name)
        password = _text(data, name, key)
        previous = _text(data, name, PREVIOUS) if PREVIOUS in data else None
        if not password:
            raise ScaleError(f"key {key} of the Secret {name} is empty: put the nodes' password there")
    if wish.pods.tls is not None:
        authority = _text(_data(api, wish, wish.pods.tls), wish.pods.tls, "ca.crt")
    return Secrets(password, previous or None, authority)


def _data(api: Api, wish: Wish, name: str) -> Mapping[str, Any]:
    try:
        found = api.get(SECRETS, wish.namespace, name)
    except KubernetesError as error:
        if error.code not in _REFUSED:  # the server cannot say now: the Secret may well be there
            raise
        raise ScaleError(f"the Secret {name} cannot be read: {error}") from error
    if found is None:
        raise ScaleError(f"there is no Secret {name} in {wish.namespace}: create it")
    data: Mapping[str, Any] = found.get("data") or {}
    return data


def _text(data: Mapping[str, Any], name: str, key: str) -> str:
    """As the nodes' shell reads it: without newlines at its end."""
    try:
        return base64.b64decode(data[key], validate=True).decode().rstrip("\n")
    except KeyError:
        raise ScaleError(f"the Secret {name} has no key {key}") from None
    except (binascii.Error, UnicodeDecodeError):
        raise ScaleError(f"key {key} of the Secret {name} is no text in UTF-8") from None
