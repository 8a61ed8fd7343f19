"""The normal form of region recipes: chains of steps, of which equal pixels by composition have only one.

A step cuts, turns, then resamples. All but the last step resample; the last only cuts and turns. So crops and turns
always compose into one step, exactly. Resampling again adds a step, unless what was there is an *enlargement* (nearest
neighbour, whole factors), which loses nothing and is therefore rewritten:

1. a turn before an enlargement moves behind it;
2. an enlarged row or column that a later crop drops is not cut from the original in the first place;
3. an enlargement of one or two rows by more than is seen of them is the smaller enlargement that shows the same;
4. nearest-neighbour resampling of (a part of) an enlargement, to where its factors are whole again, is another
   enlargement, or none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmcache.keys.turn import Turn

Box = tuple[int, int, int, int]
"""left, upper, right, lower in pixels; right and lower are outside, as in Pillow."""

Size = tuple[int, int]
"""width, height."""


@dataclass(frozen=True, slots=True)
class Step:
    """Cut `box`, turn it, then resample it to `scaled` with `filter` (empty: the last step)."""

    box: Box
    turn: Turn = Turn.NONE
    filter: str = ""
    scaled: Size = (0, 0)

    @property
    def cut(self) -> Size:
        """Width and height of the rectangle."""
        left, upper, right, lower = self.box
        return right - left, lower - upper

    @property
    def size(self) -> Size:
        """Width and height of what comes out."""
        return self.scaled if self.filter else self.turn.size(self.cut)

    @property
    def factors(self) -> Size | None:
        """Whole factors of an enlargement, in the directions of its result; None for any other resampling."""
        (w, h), (across, down) = self.turn.size(self.cut), self.scaled
        return (across // w, down // h) if self.filter == "nearest" and across % w == 0 and down % h == 0 else None


Chain = tuple[Step, ...]


def whole(size: Size) -> Step:
    """The step that changes nothing."""
    return Step((0, 0, *size))


def cut(chain: Chain, box: Box) -> Chain:
    """`box` of the chain's result."""
    return normal((*chain[:-1], _after(chain[-1], Step(box))))


def turned(chain: Chain, turn: Turn) -> Chain:
    """The chain's result, turned."""
    return normal((*chain[:-1], replace(chain[-1], turn=chain[-1].turn.then(turn))))


def resampled(chain: Chain, size: Size, filter: str) -> Chain:
    """The chain's result, resampled; unchanged when it has that size already, as in Pillow."""
    last = chain[-1]
    if last.size == size:
        return chain
    return normal((*chain[:-1], replace(last, filter=filter, scaled=size), whole(size)))


def normal(chain: Chain) -> Chain:
    """The normal form."""
    while (better := _pass(chain)) != chain:
        chain = better
    return chain


def _after(first: Step, second: Step) -> Step:
    """Both as one step, where `first` only cuts and turns."""
    left, upper, right, lower = first.turn.before(second.box, first.cut)
    x, y = first.box[:2]
    box = x + left, y + upper, x + right, y + lower
    return replace(second, box=box, turn=first.turn.then(second.turn))


def _pass(chain: Chain) -> Chain:
    steps = list(chain)
    for place in range(len(steps) - 1):
        steps[place : place + 2] = _turn_late(steps[place], steps[place + 1])
    for place in range(len(steps) - 2, -1, -1):
        steps[place : place + 2] = _tight(steps[place], steps[place + 1])
    for place in range(len(steps) - 3, -1, -1):
        steps[place : place + 3] = _one_enlargement(*steps[place : place + 3])
    return tuple(replace(step, turn=_least(step.turn, step.cut)) for step in steps)


def _turn_late(first: Step, second: Step) -> list[Step]:
    if first.factors is None or not first.turn:
        return [first, second]
    before = first.turn.size(first.scaled)  # the turn is a quarter or none: the same swap undoes it
    box = first.turn.before(second.box, before)
    turn = first.turn.then(second.turn)
    return [replace(first, turn=Turn.NONE, scaled=before), replace(second, box=box, turn=turn)]


def _one_enlargement(first: Step, second: Step, third: Step) -> list[Step]:
    """Two nearest-neighbour resamplings as one, where that is exact.

    Along an axis, `second` maps its pixel x to floor((x + ½) r) + start, with r = cut / scaled. Where start / r and
    k' = k / r are whole, that lies in block floor((x + start / r + ½) / k') of an enlargement by k, and x + ½ is
    never on a block's edge.
    """
    if first.factors is None or first.turn or second.filter != "nearest":
        return [first, second, third]
    scaled = second.turn.size(second.scaled)
    moves = [(second.box[axis] * scaled[axis], first.factors[axis] * scaled[axis]) for axis in (0, 1)]
    if any(number % second.cut[axis] for axis, pair in enumerate(moves) for number in pair):
        return [first, second, third]
    (x, kx), (y, ky) = ((a // second.cut[axis], b // second.cut[axis]) for axis, (a, b) in enumerate(moves))
    left, upper, right, lower = second.turn.before(third.box, scaled)
    return [
        replace(first, scaled=(first.cut[0] * kx, first.cut[1] * ky)),
        replace(third, box=(left + x, upper + y, right + x, lower + y), turn=second.turn.then(third.turn)),
    ]


def _tight(first: Step, second: Step) -> list[Step]:
    """`first` without what `second` does not show of it; one step where `first` is then nothing but a cut."""
    factors = first.factors
    if factors is None or first.turn:
        return [first, second]
    x, x_end, kx, left, right = _axis(second.box[0], second.box[2], factors[0])
    y, y_end, ky, upper, lower = _axis(second.box[1], second.box[3], factors[1])
    scaled = kx * (x_end - x), ky * (y_end - y)
    box = first.box[0] + x, first.box[1] + y, first.box[0] + x_end, first.box[1] + y_end
    second = replace(second, box=(left, upper, right, lower))
    if (kx, ky) == (1, 1):
        return [_after(Step(box), second)]
    first = replace(first, box=box, scaled=scaled)
    if first.cut == (1, 1):  # of one colour
        scaled = second.turn.size(scaled)
        return [replace(first, scaled=scaled), replace(second, box=(0, 0, *scaled), turn=Turn.NONE)]
    return [first, replace(second, turn=_least(second.turn, first.cut))]


def _axis(start: int, end: int, factor: int) -> tuple[int, int, int, int, int]:
    """Pixels [start, end) of an axis enlarged by `factor`: the source pixels they show, the least factor that can
    show them so, and where they then lie.
    """
    first, last = start // factor, -(-end // factor)
    shown = min(end, (first + 1) * factor) - start
    if last - first == 1:
        factor, start = end - start, 0
        return first, last, factor, start, factor
    if last - first == 2:
        rest = end - (first + 1) * factor
        factor = max(shown, rest)
    start, length = factor - shown, end - start
    return first, last, factor, start, start + length


def _least(turn: Turn, size: Size) -> Turn:
    """The first of the turns that do the same to a picture one pixel wide or high."""
    if size == (1, 1):
        return Turn.NONE
    same = Turn.FLIP if size[0] == 1 else Turn.FLIP_180 if size[1] == 1 else Turn.NONE
    return min(turn, same.then(turn))
