"""A pod's files and environment: its volumes become folders, and the paths in its words are changed to where they are.

No container is made, so that root is not needed: `/etc/app` in a command, an environment variable, a probe or a
ConfigMap becomes the folder that was made for it. `0.0.0.0` becomes the pod's own address, since all pods share one
machine.
"""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmcache.lab.kubernetes.api import Api, ApiError

Json = Mapping[str, Any]
_ANY = re.compile(r"(?<![\d.])0\.0\.0\.0(?![\d./])")
_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class MissingError(ApiError):
    """A ConfigMap or Secret that a pod needs is not there (yet)."""


class Files:
    """Of one pod, in `folder`. Raises `MissingError`, `ApiError`, `OSError`."""

    def __init__(self, api: Api, pod: Json, address: str, folder: Path) -> None:
        self._api, self._pod, self._address, self._folder = api, pod, address, folder
        self._namespace = pod["metadata"]["namespace"]
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        self._made: set[str] = set()

    def words(self, container: Json) -> Words:
        """How the words of this container are read. Makes the volumes that it mounts."""
        places = {}
        for mount in container.get("volumeMounts") or ():
            where = self._folder / "volumes" / mount["name"] / (mount.get("subPath") or "")
            places[mount["mountPath"].rstrip("/")] = self._host_path(mount["name"]) or where
        words = Words(places, self._address)
        for mount in container.get("volumeMounts") or ():
            self._make(self._volumes.get(mount["name"], {}), words)
        return words

    def environment(self, container: Json, words: Words) -> dict[str, str]:
        """What the container asks for, `$(NAME)` put in."""
        found: dict[str, str] = {}
        for source in container.get("envFrom") or ():
            for kind, plural in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
                if kind in source:
                    data = self._data(plural, source[kind])
                    found |= {source.get("prefix", "") + key: value.decode() for key, value in data.items()}
        for variable in container.get("env") or ():
            value = variable.get("value")
            if value is None and "valueFrom" in variable:
                value = self._value(variable["valueFrom"], container)
            if value is not None:
                found[variable["name"]] = words.read(expand(value, found))
        return found

    def remove(self) -> None:
        """All of it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _host_path(self, name: str) -> Path | None:
        host = self._volumes.get(name, {}).get("hostPath")
        return Path(host["path"]) if host else None

    def _make(self, volume: Json, words: Words) -> None:
        name = volume.get("name")
        if name is None or name in self._made:
            return
        where = self._folder / "volumes" / name
        where.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in [volume, *(volume.get("projected") or {}).get("sources", ())]:
            if "configMap" in part:
                for key, value in self._chosen("configmaps", part["configMap"], part["configMap"].get("name")).items():
                    _write(
                        where / key, words.read(value.decode(errors="surrogateescape")).encode(errors="surrogateescape")
                    )
            if "secret" in part:
                told = part["secret"]
                for key, value in self._chosen("secrets", told, told.get("secretName") or told.get("name")).items():
                    _write(where / key, value)
            for item in (part.get("downwardAPI") or {}).get("items", ()):
                _write(where / item["path"], (self._value(item, {}) or "").encode())
        self._made.add(name)  # not before: what was missing may be there at the next try

    def _chosen(self, plural: str, told: Json, name: str | None) -> Mapping[str, bytes]:
        data = self._data(plural, {"name": name, "optional": told.get("optional")})
        items = told.get("items")
        return {item["path"]: data[item["key"]] for item in items if item["key"] in data} if items else data

    def _data(self, plural: str, reference: Json) -> dict[str, bytes]:
        path = f"/api/v1/namespaces/{self._namespace}/{plural}/{reference['name']}"
        try:
            found = self._api.get(path)
        except ApiError as error:
            if error.code == 404 and reference.get("optional"):
                return {}
            raise MissingError(error.code, error.reason, str(error)) from error
        if plural == "secrets":
            return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        data = {key: value.encode() for key, value in (found.get("data") or {}).items()}
        return data | {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}

    def _value(self, source: Json, container: Json) -> str | None:
        for kind, plural in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
            if kind in source:
                value = self._data(plural, source[kind]).get(source[kind]["key"])
                if value is None and not source[kind].get("optional"):
                    raise MissingError(404, "NotFound", f"no key {source[kind]['key']} in {source[kind]['name']}")
                return None if value is None else value.decode()
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        if "resourceFieldRef" in source:
            kind, _, name = source["resourceFieldRef"]["resource"].partition(".")
            return str(((container.get("resources") or {}).get(kind) or {}).get(name, "0"))
        return None

    def _field(self, path: str) -> str:
        if path in ("status.podIP", "status.podIPs", "status.hostIP"):
            return self._address if path != "status.hostIP" else "127.0.0.1"
        found: Any = self._pod
        head, bracket, rest = path.partition("[")
        for part in [*head.split("."), *([rest.strip("']\"")] if bracket else [])]:
            found = (found or {}).get(part, "")
        return str(found)


class Words:
    """Paths as a container sees them, read as they are here."""

    def __init__(self, places: Mapping[str, Path], address: str) -> None:
        self._places, self._address = places, address
        longest = sorted(map(re.escape, places), key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![\w./-])({'|'.join(longest)})(?![\w.-])") if longest else None

    def read(self, text: str) -> str:
        """`text` with all paths and addresses changed."""
        if self._pattern is not None:
            text = self._pattern.sub(lambda found: str(self._places[found[1]]), text)
        return _ANY.sub(self._address, text)


def expand(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` put in where it is known, `$$` read as `$`, as Kubernetes does it."""
    return _VARIABLE.sub(lambda found: "$" if found[1] is None else known.get(found[1], found[0]), text)


def _write(path: Path, value: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_bytes(value)
