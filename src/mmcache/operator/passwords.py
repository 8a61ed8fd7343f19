"""A new password, without a restart: nodes take several.

Put the new one in the Secret's key and the old one in `previous`: the operator tells every node that both are good.
When all clients have the new one, take `previous` away: then nodes take the new one only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from mmcache.model.errors import ScaleError
from mmcache.operator.secrets import Secrets
from mmcache.scale.access import Access, Contact
from mmcache.scale.observed import Member

_DEFAULT = "default"


def spread(members: Sequence[Member], secrets: Secrets, tls: Access) -> list[str]:
    """Every node that runs takes what is to be taken, and no more. Returns what went wrong, a line a node.

    tls: how nodes are talked to; its password is not looked at.
    """
    if secrets.password is None:
        return []
    wrong = []
    for member in members:
        if member.host and not member.leaving:
            try:
                _tell(member, secrets, tls)
            except ScaleError as error:
                wrong.append(f"{member.name}: {error}")
    return wrong


def _tell(member: Member, secrets: Secrets, tls: Access) -> None:
    assert secrets.password is not None
    good = [word for word in (secrets.password, secrets.previous) if word]
    with _entered(member, good, tls) as node:
        node.ask("CONFIG", "SET", "masterauth", secrets.password)
        node.ask("ACL", "SETUSER", _DEFAULT, "resetpass", *(f"#{_hash(word)}" for word in good))


def _entered(member: Member, good: Sequence[str], tls: Access) -> Contact:
    for word in good[:-1]:
        try:
            return Access(word, None, tls.tls, tls.timeout_seconds).to(member.host, member.port)
        except ScaleError:
            continue
    return Access(good[-1], None, tls.tls, tls.timeout_seconds).to(member.host, member.port)


def _hash(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()
