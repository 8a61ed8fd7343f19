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
from mmcache.scale.observe import side_by_side
from mmcache.scale.observed import Member

_DEFAULT = "default"


def spread(members: Sequence[Member], secrets: Secrets, older: Sequence[str], tls: Access) -> list[str]:
    """Every node that runs takes what is to be taken, and no more. Returns what went wrong, a line a node.

    older: passwords that were good once, by which a node may be reached that started with an old file. tls: how nodes
    are talked to; its password is not looked at.
    """
    good = [word for word in (secrets.password, secrets.previous) if word]
    asked = [member for member in members if member.host and not member.leaving]
    if not good or not asked:
        return []
    done = side_by_side(lambda member: _tell(member, good, older, tls), asked, 3 * tls.timeout_seconds)
    return [f"{one.name}: {said or 'it does not answer in time'}" for one, said in zip(asked, done, strict=True)
            if said is not True]  # fmt: skip


def _tell(member: Member, good: Sequence[str], older: Sequence[str], tls: Access) -> bool:
    with _entered(member, list(dict.fromkeys([*good, *older])), tls) as node:
        node.ask("CONFIG", "SET", "masterauth", good[0])
        node.ask("ACL", "SETUSER", _DEFAULT, "resetpass", *(f"#{_hash(word)}" for word in good))
    return True


def _entered(member: Member, words: Sequence[str], tls: Access) -> Contact:
    for word in words[:-1]:
        try:
            return _contact(member, word, tls)
        except ScaleError:
            continue
    return _contact(member, words[-1], tls)


def _contact(member: Member, word: str, tls: Access) -> Contact:
    return Access(word, None, tls.tls, tls.timeout_seconds).to(member.host, member.port)


def _hash(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()
