"""`RealmKeys`: one secret, from which every tenant's salt and every scope is derived.

A realm is a tenant and a namespace. Its salt keys the BLAKE3 of all content, so digests of different realms are
unrelated, and nobody without the secret can tell from a key what the content was.
"""

from __future__ import annotations

import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path

from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.model.signature import Signature

SECRET_BYTES = 32


class RealmKeys:
    """Derives salts and scopes from a root secret of 32 bytes. Raises `SettingsError` for another length."""

    __slots__ = ("_root", "salt")

    def __init__(self, root_secret: bytes) -> None:
        if len(root_secret) != SECRET_BYTES:
            raise SettingsError(f"a root secret has {SECRET_BYTES} bytes, got {len(root_secret)}")
        # A key of its own: the root secret also seals snapshots, and one key should serve one purpose.
        self._root = blake3(bytes(root_secret), derive_key_context="mmcache 2026 realm salts v1").digest()
        self.salt = lru_cache(maxsize=4096)(self._salt)
        """`salt(tenant, namespace)`: 32 bytes, remembered for the last 4 096 realms."""

    def __repr__(self) -> str:
        return "RealmKeys(…)"

    def _salt(self, tenant: str, namespace: str) -> bytes:
        try:
            parts = tenant.encode(), namespace.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError("a tenant or namespace holds a lone surrogate; pass valid Unicode") from error
        return blake3(framed("realm", *parts), key=self._root).digest()

    def scope(self, salt: bytes, signature: Signature) -> bytes:
        """The 16-byte scope of a realm under one signature."""
        return self.scope_of(salt, signature.digest)

    def scope_of(self, salt: bytes, signature_digest: bytes) -> bytes:
        """The same, where only the signature's digest is known (it stands in every frame)."""
        return blake3(framed("scope", signature_digest), key=salt).digest(length=DIGEST_BYTES)

    @staticmethod
    def load(path: str | Path) -> RealmKeys:
        """The keys of the secret in `path`; see `load_secret`."""
        return RealmKeys(load_secret(path))


def root_secret(root: Path | None, secret: bytes | None) -> bytes:
    """`secret`, else the key file's in the folder `root`, which is made; else a new one. Raises `SettingsError`."""
    if root is not None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if secret is not None:
        return secret
    return secrets.token_bytes(SECRET_BYTES) if root is None else load_secret(root / "realm.key")


def load_secret(path: str | Path) -> bytes:
    """The 32-byte secret in `path`, created there (mode 0600) when the file does not exist.

    Safe between processes: whoever links a complete file first wins, and all read the same secret. Raises
    `SettingsError` for a file that others may read, of another length, unreadable, or that cannot be created.
    """
    path = Path(path).expanduser()
    try:
        if not path.exists():
            _create(path)
        return _read(path)
    except OSError as error:
        raise SettingsError(f"cannot read or create the key file {path}: {error.strerror or error}") from error


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(draft, path)  # unlike rename, never replaces the secret of a faster process
        except FileExistsError:
            return
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        os.unlink(draft)


def _read(path: Path) -> bytes:
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise SettingsError(f"the key file {path} is not a regular file")
        if mode & 0o077:
            raise SettingsError(
                f"the key file {path} may be read by others (mode {mode & 0o777:04o}); run: chmod 600 {path}"
            )
        secret = file.read(SECRET_BYTES + 1)
    if len(secret) != SECRET_BYTES:
        raise SettingsError(f"the key file {path} must hold exactly {SECRET_BYTES} bytes; delete it to start afresh")
    return secret
