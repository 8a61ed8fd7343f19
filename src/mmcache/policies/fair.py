"""Fair shares: which tenant loses a block when several share a limit. Which of its blocks, its own policy says."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush

from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.base import Explains, Policy
from mmcache.settings import Tenant

_STRANGER = Tenant()
_REMEMBERED = 64
"""Tenants that nobody named and that hold nothing keep their policy (it may have learned) up to this many."""
_APART = 256
"""Tenants that nobody named with a policy of their own; others share one, for a policy may hold 30 KB of tables."""
_TOGETHER = ""
"""Name of the account that they share."""

_Rank = tuple[float, float, int]


class _Account:
    """What one tenant holds."""

    __slots__ = ("blocks", "bytes", "name", "number", "place", "policy", "rank", "refuses", "weight")

    def __init__(self, name: str, weight: float, number: int, policy: Policy) -> None:
        self.name, self.weight, self.number, self.policy = name, weight, number, policy
        self.refuses = bool(getattr(policy, "refuses", False))
        self.bytes = self.blocks = 0
        self.place = -1
        self.rank = self.rank_at(0)

    def rank_at(self, held: int) -> _Rank:
        """The lowest loses first: who is most above its share; of equals the lower class, then who came first."""
        return (-held / self.weight, self.weight, self.number)


def _last(order: Iterator[Key], last: Key) -> Iterator[Key]:
    for key in order:
        if key != last:
            yield key
    yield last


class FairShare:
    """One policy per tenant; the tenant that holds the most bytes per weight loses a block first.

    Weights are those of the classes (critical 10, normal 3, batch 0.5; see `settings.Tenant`). With `limit` the bytes
    that all hold when a victim is needed, and `sum` over the tenants that hold anything,

        a tenant that holds at most  limit · weight ÷ sum(weights)  loses nothing,

    because whoever loses has the largest bytes ÷ weight, and the largest is never below limit ÷ sum(weights). Hence:

    * space is never left idle: a lone batch job may fill the cache;
    * when a critical tenant (10) comes back it takes that space, down to the batch tenant's share (0.5 ÷ 10.5 = 4.8 %);
    * a batch tenant with demand keeps that share for ever: it is slowed down, and never starved;
    * what a critical tenant can lose to it are its coldest 4.8 %.

    Beyond 256 tenants that nobody named, further ones count as one tenant together.

    The weights are per tenant: a thousand tenants of one class outweigh one of a higher class; quotas bound them. This
    is weighted max-min fairness (Demers, Keshav and Shenker, "Analysis and simulation of a fair queueing algorithm",
    SIGCOMM 1989) of space instead of time.

    A new block counts for its tenant while room is made for it, and may itself be the victim: where its tenant's own
    policy refuses it, or where the tenant would still be the one most above its share after losing all its others.

    `add`, `touch` and `drop` cost O(log tenants) beside the inner policy's work; a victim likewise, with no work for
    tenants that do not lose.
    """

    __slots__ = ("_accounts", "_blocks", "_heap", "_idle", "_make", "_newest", "_next", "_strangers", "_tenants")

    refuses = True
    """See `Policy`."""

    def __init__(self, make: Callable[[], Policy], tenants: Mapping[str, Tenant]) -> None:
        """`make` gives a new policy for each tenant; a tenant that is not in `tenants` is `Tenant()`."""
        self._make, self._tenants = make, dict(tenants)
        self._accounts: dict[str, _Account] = {}
        self._blocks: dict[Key, tuple[_Account, int]] = {}
        self._heap: list[_Account] = []  # of accounts with blocks, by rank; each knows its place
        self._idle: OrderedDict[str, None] = OrderedDict()
        self._next = self._strangers = 0
        self._newest: Key | None = None

    def bytes_of(self, tenant: str) -> int:
        """Bytes that a tenant holds, as its facts said."""
        account = self._accounts.get(tenant)
        return 0 if account is None else account.bytes

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """See `Policy.add`."""
        account, old = self._blocks.get(key, (None, 0))
        if account is None or not self._is_of(facts.tenant, account):
            self.drop(key)
            account, old = self._account(facts.tenant), 0
            account.blocks += 1
            self._newest = key
        account.policy.add(key, facts, now)
        self._blocks[key] = account, facts.size
        self._charge(account, facts.size - old)

    def touch(self, key: Key, now: float) -> None:
        """See `Policy.touch`."""
        if (block := self._blocks.get(key)) is not None:
            block[0].policy.touch(key, now)

    def drop(self, key: Key) -> None:
        """See `Policy.drop`."""
        if (block := self._blocks.pop(key, None)) is not None:
            account, size = block
            account.policy.drop(key)
            account.blocks -= 1
            self._charge(account, -size)

    def victims(self, now: float) -> Iterator[Key]:
        """See `Policy.victims`; each victim lowers its tenant's share for the next choice."""
        heap, blocks = self._heap, self._blocks
        # What may be next: tenants that already lost, and heap nodes whose parents were reached. Never all tenants.
        frontier: list[tuple[_Rank, int, Iterator[Key] | None, int]] = []
        if heap:
            frontier.append((heap[0].rank, 0, None, heap[0].bytes))
        while frontier:
            _, place, keys, held = heappop(frontier)
            account = heap[place]
            if keys is None:
                keys = self._order(account, now)
                for child in range(2 * place + 1, min(2 * place + 3, len(heap))):
                    heappush(frontier, (heap[child].rank, child, None, heap[child].bytes))
            key = next(keys, None)
            if key is None:
                continue
            held -= blocks[key][1]
            heappush(frontier, (account.rank_at(held), place, keys, held))
            yield key

    def victims_of(self, tenant: str, now: float) -> Iterator[Key]:
        """The tenant's own blocks, the first to go first: for quotas."""
        account = self._accounts.get(tenant)
        return iter(()) if account is None else self._order(account, now)

    def _order(self, account: _Account, now: float) -> Iterator[Key]:
        """The tenant's victims. The newest block goes last unless its policy may refuse it: most policies would have it
        go first, before it ever had a chance of being used."""
        order, newest = account.policy.victims(now), self._newest
        if account.refuses or newest is None or self._blocks.get(newest, (None, 0))[0] is not account:
            return order
        return _last(order, newest)

    def explain(self, key: Key, now: float) -> Mapping[str, float]:
        """See `Explains.explain`. The tenant's bytes ÷ weight decide between tenants (`score` is their negative), the
        inner policy's score (`within_tenant`) between blocks of one tenant."""
        if (block := self._blocks.get(key)) is None:
            return {}
        account = block[0]
        policy = account.policy
        inner = dict(policy.explain(key, now)) if isinstance(policy, Explains) else {}
        if "score" in inner:
            inner["within_tenant"] = inner.pop("score")
        return {
            **inner,
            "tenant_bytes": float(account.bytes),
            "tenant_weight": account.weight,
            "score": account.rank[0],
        }

    def _is_of(self, tenant: str, account: _Account) -> bool:
        return account.name == tenant or (account.name == _TOGETHER and tenant not in self._accounts)

    def _account(self, tenant: str) -> _Account:
        if tenant not in self._accounts and tenant not in self._tenants and self._strangers >= _APART:
            if self._idle:
                self._forget_idle()
            else:
                tenant = _TOGETHER
        account = self._accounts.get(tenant)
        if account is None:
            weight = self._tenants.get(tenant, _STRANGER).weight
            account = self._accounts[tenant] = _Account(tenant, weight, self._next, self._make())
            self._next += 1
            self._strangers += tenant not in self._tenants
        self._idle.pop(tenant, None)
        return account

    def _forget_idle(self) -> None:
        del self._accounts[self._idle.popitem(last=False)[0]]
        self._strangers -= 1

    def _charge(self, account: _Account, size: int) -> None:
        """Change what an account holds, and its place in the heap."""
        account.bytes += size
        account.rank = account.rank_at(account.bytes)
        if account.blocks == 0:
            self._leave(account)
        elif account.place < 0:
            self._set(account, len(self._heap))
            self._up(account)
        else:
            self._up(account)
            self._down(account)

    def _leave(self, account: _Account) -> None:
        last, place = self._heap.pop(), account.place
        account.place = -1
        if last is not account:
            self._set(last, place)
            self._up(last)
            self._down(last)
        if account.name not in self._tenants:
            self._idle[account.name] = None
            if len(self._idle) > _REMEMBERED:
                self._forget_idle()

    def _set(self, account: _Account, place: int) -> None:
        account.place = place
        self._heap[place : place + 1] = [account]

    def _up(self, account: _Account) -> None:
        heap, place = self._heap, account.place
        while place:
            parent = heap[(place - 1) // 2]
            if parent.rank <= account.rank:
                break
            self._set(parent, place)
            place = (place - 1) // 2
        self._set(account, place)

    def _down(self, account: _Account) -> None:
        heap, place = self._heap, account.place
        while (child := 2 * place + 1) < len(heap):
            if child + 1 < len(heap) and heap[child + 1].rank < heap[child].rank:
                child += 1
            if account.rank <= heap[child].rank:
                break
            self._set(heap[child], place)
            place = child
        self._set(account, place)
