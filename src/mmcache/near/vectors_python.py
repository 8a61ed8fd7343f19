"""The plain twin of the vector search: the same float operations in the same order, so the same results to the bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mmcache.near.slots import Slots, alone, grown, ones_of, whole

Floats = npt.NDArray[np.float32]

WORDS, LANES, ROUNDS = 8, 16, 2
BITS = 64 * WORDS
CANDIDATES, PER_RESULT, FIRST, SPREADS, BRUTE, RECENTRED = 512, 64, 4, 3, 2048, 16384
MOST_DIMS = 65536


def folded(lanes: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """[…, 16] added up in halves."""
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def hadamard(x: Floats) -> Floats:
    """The Walsh-Hadamard transform of [n, 2**m], not scaled."""
    h = 1
    while h < x.shape[1]:
        pairs = x.reshape(len(x), -1, 2, h)
        x = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(len(x), -1)
        h *= 2
    return x


def random_signs(n: int) -> Floats:
    """1 or -1, by splitmix64."""
    state = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return np.where((z ^ z >> np.uint64(31)) >> np.uint64(63), np.float32(-1), np.float32(1))


class PythonRows(Slots):
    """See `mmcache.near.vectors`."""

    def __init__(self, dims: int, refused: type[Exception]) -> None:
        super().__init__(refused)
        self._dims = whole(dims, 1, MOST_DIMS + 1, refused, f"a vector has 1 to {MOST_DIMS} dimensions")
        self._width = -(-dims // LANES) * LANES
        self._spread = max(LANES, 1 << (dims - 1).bit_length())
        self._rows = np.empty((0, self._width), np.float16)
        self._sketches: npt.NDArray[np.uint64] | None = None
        self._sum, self._mean = np.zeros(dims), np.zeros(dims, np.float32)
        self._signs = np.empty((0, ROUNDS, self._spread), np.float32)
        self._centred = 0

    @alone
    def add(self, label: int, vector: Floats, /) -> None:
        """Refuses a label that is there."""
        row = self._unit(vector).astype(np.float16)
        slot = self.place(label)
        if slot == len(self._rows):
            self._rows = grown(self._rows)
            if self._sketches is not None:
                self._sketches = grown(self._sketches)
        self._rows[slot] = row
        self._sum += row[: self._dims].astype(np.float64)
        count = len(self)
        if (count >= BRUTE and self._centred < BRUTE) or (count >= RECENTRED and self._centred < RECENTRED):
            self._centre(count)
        elif self._sketches is not None:
            self._sketches[slot] = self._sketched(row[None].astype(np.float32))[0]

    @alone
    def drop(self, label: int, /) -> bool:
        """Whether it was there."""
        slot = self.slot(label)
        if slot is not None:
            self._sum -= self._rows[slot, : self._dims].astype(np.float64)
        move = self.leave(label)
        if move is None:
            return False
        self._rows[move[0]] = self._rows[move[1]]
        if self._sketches is not None:
            self._sketches[move[0]] = self._sketches[move[1]]
        return True

    @alone
    def get(self, label: int, out: Floats, /) -> bool:
        """Whether it is there; then `out` is filled."""
        slot = self.slot(label)
        if slot is None:
            return False
        out[:] = self._rows[slot, : self._dims]
        return True

    @alone
    def nearest(
        self, vector: Floats, k: int, least: float, among: npt.NDArray[np.int64] | None, /
    ) -> list[tuple[int, float]]:
        """(label, cosine), best first, then by label."""
        k = whole(k, 1, 1 << 63, self.refused, "k is a whole number from 1")
        unit = self._unit(vector)
        slots = np.arange(len(self))
        if among is not None:
            known = {slot for label in among.tolist() if (slot := self.of.get(label)) is not None}
            slots = np.array(sorted(known), np.int64)
        most = min(k, len(self))
        wanted = most * PER_RESULT if most > CANDIDATES // PER_RESULT else CANDIDATES
        if self._sketches is not None and len(slots) > BRUTE and wanted < len(slots):
            sketch = self._sketched(unit[None])[0]
            far = ones_of(self._sketches[slots] ^ sketch).sum(1, dtype=np.int64)
            order = np.argsort(far, kind="stable")[:wanted]
            slots, far = slots[order], far[order]
            first = wanted // FIRST
            best = self._best(slots[:first], unit, k)[0]
            bits = int(far[:first][best].max())
            more = np.maximum(far - bits, 0)
            may = more * more * BITS <= SPREADS * SPREADS * 2 * bits * (BITS - bits)
            slots = slots[: max(first, int(may.sum()))]
        order, cosines = self._best(slots, unit, k)
        pairs = zip(self.labels[slots[order]].tolist(), cosines.tolist(), strict=True)
        return [(label, cosine) for label, cosine in pairs if cosine >= least]

    def _best(self, slots: npt.NDArray[np.int64], unit: Floats, k: int) -> tuple[npt.NDArray[np.int64], Floats]:
        """Which `k` of `slots`, best first, and their cosines."""
        lanes = np.zeros((len(slots), LANES), np.float32)
        for at in range(0, self._width, LANES):
            lanes += self._rows[slots, at : at + LANES].astype(np.float32) * unit[at : at + LANES]
        cosines = np.clip(folded(lanes), -1, 1)
        order = np.lexsort((self.labels[slots], -cosines))[:k]
        return order, cosines[order]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        sketches = 0 if self._sketches is None else self._sketches.nbytes
        return self._rows.nbytes + sketches + self.labels.nbytes + len(self) * 100  # about what a dict takes

    def _unit(self, vector: Floats) -> Floats:
        x = np.zeros(self._width)
        x[: self._dims] = vector
        lanes = np.zeros(LANES)
        for at in range(0, self._width, LANES):
            lanes += x[at : at + LANES] * x[at : at + LANES]
        norm = float(np.sqrt(folded(lanes)))
        if not 0 < norm < np.inf:
            raise self.refused("a vector of zeros has no direction" if norm == 0 else "a vector must be finite")
        return (x / norm).astype(np.float32)

    def _centre(self, count: int) -> None:
        """At BRUTE rows, and once more at RECENTRED: the mean of what there is, and everybody's sketch about it."""
        if self._sketches is None:
            turns = BITS // self._spread if self._spread < BITS else 1
            self._signs = random_signs(turns * ROUNDS * self._spread).reshape(turns, ROUNDS, self._spread)
            self._sketches = np.zeros((len(self._rows), WORDS), np.uint64)
        self._mean = (self._sum / count).astype(np.float32)
        for at in range(0, count, 1024):
            end = min(at + 1024, count)
            self._sketches[at:end] = self._sketched(self._rows[at:end].astype(np.float32))
        self._centred = count

    def _sketched(self, rows: Floats) -> npt.NDArray[np.uint64]:
        """Signs after a random rotation about the mean: [n, width] → [n, WORDS]."""
        bits = []
        for signs in self._signs:
            x = np.zeros((len(rows), self._spread), np.float32)
            x[:, : self._dims] = rows[:, : self._dims] - self._mean
            for sign in signs:
                x = hadamard(x * sign)
            bits.append(x[:, :BITS] > 0)
        return np.packbits(np.concatenate(bits, axis=1), axis=1, bitorder="little").view(np.uint64)
