"""TLS: who may vouch for a server, and who we are."""

from __future__ import annotations

import socket
import ssl

from mmcache.model.errors import SettingsError, TierError
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.limit import LateError
from mmcache.tiers.valkey.stream import SecureStream


def context(settings: SharedSettings) -> ssl.SSLContext:
    """Checks the server's certificate and its name. Raises `SettingsError`."""
    try:
        made = ssl.create_default_context(cafile=settings.tls_ca)
        if settings.tls_cert is not None:
            made.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise SettingsError(f"shared: tls_ca, tls_cert or tls_key cannot be read as PEM: {error}") from error
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    return made


def wrap(connected: socket.socket, host: str, seconds: float, by: ssl.SSLContext) -> SecureStream:
    """Agree with the server on keys. Raises `TierError`, `OSError`."""
    try:
        connected.settimeout(seconds)
        return SecureStream(by.wrap_socket(connected, server_hostname=host))
    except ssl.SSLCertVerificationError as error:
        raise TierError(f"its certificate is not trusted: {error.verify_message}; see `tls_ca` and the name") from error
    except ssl.SSLError as error:
        raise TierError(f"TLS failed: {error.reason}; does this port speak TLS, and want our certificate?") from error
    except TimeoutError as error:
        raise LateError("it does not answer TLS in time; does this port speak TLS? plain: valkey://") from error
