"""Certificates that are made on the spot, right and wrong ones, for servers with TLS."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmcache.model.errors import AssetError

_DAYS = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Certificates:
    """PEM files of a server, of the authority that vouches for it, and of an authority that vouches for nobody."""

    authority: Path
    authority_key: Path
    certificate: Path
    key: Path
    client_certificate: Path
    client_key: Path
    stranger: Path
    """The certificate of another authority: who trusts only it must not talk to the server."""
    ask_clients: bool = False
    """Whether a client must show a certificate too."""

    def options(self) -> list[str]:
        """What the server's command line needs besides `--tls-port`."""
        return [
            "--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key),
            "--tls-ca-cert-file", str(self.authority), "--tls-auth-clients", "yes" if self.ask_clients else "no",
        ]  # fmt: skip


def certificates(
    folder: Path, host: str = "127.0.0.1", *, ask_clients: bool = False, by: Certificates | None = None
) -> Certificates:
    """Make them in `folder`, for a server at `host`; give another host for one whose name does not match.

    `by`: whose authority vouches for them too; by default one of their own. Raises `AssetError` where the package
    `cryptography` is missing.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise AssetError("no certificates without a package: pip install 'mmcache[crypto]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    keys: dict[str, Any] = {
        name: ec.generate_private_key(ec.SECP256R1()) for name in ("authority", "server", "client", "stranger")
    }
    if by is not None:
        keys["authority"] = serialization.load_pem_private_key(by.authority_key.read_bytes(), None)
    at = x509.IPAddress(ipaddress.ip_address(host)) if host[:1].isdigit() or ":" in host else x509.DNSName(host)
    own = {name: _signed(name, keys[name], name, keys[name], None) for name in ("authority", "stranger")}
    own |= {name: _signed(name, keys[name], "authority", keys["authority"], at) for name in ("server", "client")}
    for name, certificate in own.items():
        _write(folder / f"{name}.crt", certificate)
        _write(folder / f"{name}.key", keys[name])
    return Certificates(
        folder / "authority.crt", folder / "authority.key", folder / "server.crt", folder / "server.key",
        folder / "client.crt", folder / "client.key", folder / "stranger.crt", ask_clients,
    )  # fmt: skip


def _signed(name: str, key: Any, by: str, with_key: Any, at: Any) -> Any:
    """One that vouches for others where `at` is None."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"mmcache {name}")]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"mmcache {by}")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAYS)
        .not_valid_after(now + _DAYS)
        .add_extension(x509.BasicConstraints(ca=at is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(with_key.public_key()), critical=False
        )
    )  # fmt: skip
    if at is None:
        use = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        made = made.add_extension(use, critical=True)
    else:
        made = made.add_extension(x509.SubjectAlternativeName([at]), critical=False)
    return made.sign(with_key, hashes.SHA256())


def _write(path: Path, thing: Any) -> None:
    from cryptography.hazmat.primitives import serialization

    if hasattr(thing, "private_bytes"):
        path.write_bytes(
            thing.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )  # fmt: skip
        path.chmod(0o600)
    else:
        path.write_bytes(thing.public_bytes(serialization.Encoding.PEM))
