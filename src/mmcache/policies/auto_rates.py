"""What `auto` learns, in plain Python: how soon blocks of each class are used again, and what a byte held so is worth.

See `auto` for the method. Every double operation is one of the compiled twin, in the same order.
"""

from __future__ import annotations

USES, GAPS, GAP_OCTAVES, OCTAVES = 8, 6, 4, 26
CLASSES = USES * GAPS
PRIOR = 0.55
"""Reuses per request times age that is taken for granted of ages that no block has reached yet."""
AGE_HITS, MARGIN_HITS, CLASS_HITS = 1.0, 5.0, 6.0
"""Pseudo-hits behind the prior of an age, of a margin at that age, of a class at that age."""
BOOST = (1.0, 1.32, 1.55, 1.9, 2.51, 3.31, 4.37, 5.8)
"""Prior factor of a block that was used 1, 2, 3, 4, 8, 16, 32, 64 times: about uses to the power 0.4."""
MEMORY, MEMORY_LEAST, MEMORY_YOUNG = 5, 10000, 3
"""Requests after which half is forgotten: so many times the blocks known, or at least so many; but no more than half of
all requests so far (what is young may forget its first half), or so many times the blocks known."""

LEAST = 1e-30
"""What fades below it is 0: denormal numbers would be slow for ever."""

Table = list[list[float]]
"""Class -> octave of age -> number."""


def octave(age: int) -> int:
    """The octave of an age in requests: 0 for 0 and 1, 1 for 2 and 3, 2 for 4 to 7, …"""
    return min(max(age.bit_length() - 1, 0), OCTAVES - 1)


def class_of(uses: int, gap: int) -> int:
    """The class of a block used `uses` times, `gap` requests between the last two (0: used once)."""
    of_uses = uses - 1 if uses < 4 else min(octave(uses) + 1, USES - 1)
    return of_uses * GAPS + (min(1 + octave(gap) // GAP_OCTAVES, GAPS - 1) if gap else 0)


def _table(rows: int = CLASSES) -> Table:
    return [[0.0] * OCTAVES for _ in range(rows)]


class Rates:
    """Hits and exposure (requests spent) of each class at each octave of age; from them, the density of hits."""

    def __init__(self) -> None:
        self.exposed, self.hits, self.density = _table(), _table(), _table()
        self.learn()

    def expose(self, group: int, start: int, end: int) -> None:
        """A block of this class spent the ages from `start` to `end`."""
        start = max(start, 1)
        b, row = octave(start), self.exposed[group]
        while start < end:
            until = end if b == OCTAVES - 1 or end < 2 << b else 2 << b
            row[b] += until - start
            start, b = until, b + 1

    def hit(self, group: int, age: int) -> None:
        """A block of this class was used again at this age."""
        self.hits[group][octave(age)] += 1.0

    def fade(self, known: int, requests: int, clock: int) -> None:
        """Forget some of it: of `clock` requests in all, `requests` are new; `known` blocks and ghosts are watched."""
        young = max(0.5 * clock, MEMORY_YOUNG * float(known))
        memory = min(max(MEMORY * float(known), float(MEMORY_LEAST)), young)
        kept = memory / (memory + requests)
        for table in (self.exposed, self.hits):
            for row in table:
                row[:] = [faded if (faded := value * kept) >= LEAST else 0.0 for value in row]

    def learn(self) -> None:
        """Set `density` from `hits` and `exposed`."""
        every, by_uses, by_gap = self._margins()
        for k in range(CLASSES):
            margins = zip(by_uses[k // GAPS], by_gap[k % GAPS], every, strict=True)
            rates = [
                (hits + CLASS_HITS) / (time + CLASS_HITS * of_all / (of_uses * of_gap))
                for hits, time, (of_uses, of_gap, of_all) in zip(self.hits[k], self.exposed[k], margins, strict=True)
            ]
            self.density[k] = best_density(rates)

    def _margins(self) -> tuple[list[float], Table, Table]:
        """Reuses per request by octave: of all blocks, by uses, by gap."""
        hits, time = [0.0] * OCTAVES, [0.0] * OCTAVES
        use_hits, use_time, gap_hits, gap_time = _table(USES), _table(USES), _table(GAPS), _table(GAPS)
        for k in range(CLASSES):
            for b in range(OCTAVES):
                h, t = self.hits[k][b], self.exposed[k][b]
                hits[b] += h
                time[b] += t
                use_hits[k // GAPS][b] += h
                use_time[k // GAPS][b] += t
                gap_hits[k % GAPS][b] += h
                gap_time[k % GAPS][b] += t
        every = []
        for b in range(OCTAVES):
            prior = PRIOR / (float(1 << b) + 1.0)
            rate = (hits[b] + AGE_HITS) / (time[b] + AGE_HITS / prior)
            every.append(rate)
            for u in range(USES):
                use_hits[u][b] = (use_hits[u][b] + MARGIN_HITS) / (use_time[u][b] + MARGIN_HITS / (rate * BOOST[u]))
            for g in range(GAPS):
                gap_hits[g][b] = (gap_hits[g][b] + MARGIN_HITS) / (gap_time[g][b] + MARGIN_HITS / rate)
        return every, use_hits, gap_hits


def best_density(rates: list[float]) -> list[float]:
    """Hits per request of a block kept from each octave on until the best moment to give up (Gittins' index).

    `rates`: reuses per request at each octave of age. From the last octave backwards, each run of octaves takes in
    the one behind it as long as that is the denser: amortised one step an octave.
    """
    hit, held, stay = [0.0] * OCTAVES, [0.0] * OCTAVES, [0.0] * OCTAVES
    after = list(range(1, OCTAVES + 1))
    for b in reversed(range(OCTAVES)):
        width = float(1 << b)
        p = rates[b] * width
        stay[b] = 1.0 / (1.0 + p)
        hit[b], held[b] = p * stay[b], width * stay[b]
        while (n := after[b]) < OCTAVES and hit[n] * held[b] > hit[b] * held[n]:
            hit[b] += stay[b] * hit[n]
            held[b] += stay[b] * held[n]
            stay[b] *= stay[n]
            after[b] = after[n]
    return [h / t for h, t in zip(hit, held, strict=True)]
