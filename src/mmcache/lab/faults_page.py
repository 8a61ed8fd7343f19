"""Makes the page about failures from what table `faults` has measured.

mmcache lab run faults
python -m mmcache.lab.faults_page docs/results > docs/reference/failure-modes.md
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from mmcache.lab.faults_all import FAULTS
from mmcache.lab.faults_trial import REST_SECONDS, TIMEOUT_SECONDS, Fault
from mmcache.lab.report import number

Lines = Sequence[Mapping[str, str]]

_BEFORE = """\
# When the shared tier fails

<!-- Made from docs/results/faults.csv and faults.json by `python -m mmcache.lab.faults_page docs/results`. -->

What callers of `Cache(shared=…)` see when something befalls its servers. All of it was measured on real processes
(`mmcache lab run faults`; the figures are [here](../results/faults.md)), with `timeout_seconds={timeout:g}` and
`rest_seconds={rest:g}`. In all trials together: **{lookups:,} lookups, {errors} errors raised, {wrong} wrong values,
{stale} values that the asking host had replaced or invalidated before.**

## What holds for all of them

- **No lookup raises.** It misses with a reason, and the caller computes, as without a cache. `stats().miss_reasons`
  counts the reasons, `cache.events` has what went wrong in words, `stats().tiers["valkey"].detail` the client's counts.
- **A slow or dead node costs a lookup one timeout, once.** Then it is left alone for `rest_seconds`; after that one
  caller tries it, and if that fails the rest doubles, up to 16 times. Keys on other nodes are not concerned. A lookup
  that rests on a database row asks for its edition and for its block, which may be on two nodes.
- **A put that is lost is counted** (`lost_writes`, event `Refused` with the reason), and is never half there.
- **A drop that did not reach the server is owed**: until it is done, that key is not read from there. Other hosts are
  told as soon as the server serves again; meanwhile they go on with what they hold.
- **What rests on rows is not served** without the news of what changes: after `news_lease_seconds` such lookups miss
  with `stale-lease`, until the news are heard again.
- **It heals by itself**, and nothing has to be restarted.
"""

_AFTER = """\
## What the reasons mean

| a lookup missed as | because |
|---|---|
| `timeout` | this lookup waited for a node, in vain |
| `tier-down` | the node did not answer others just now, or let nobody in, or a drop is owed there; nobody waited |
| `denied` | the server does not allow the user to read that key |
| `stale-lease` | it rests on a row, and nobody has heard lately whether that has changed |
| `absent` | it is not there: never stored, invalidated, evicted, or lost with its node |
| `abstained` | nobody can tell by whose clock its deadline was set |

| a put was refused as | because |
|---|---|
| `tier-down` | its node is down, or gave no lease for the computation |
| `quota` | the server is full, and evicts nothing |
| `read-only` | the server takes no writes, or not from this user |
| `invalidated` | something has overtaken its computation, or that cannot be ruled out |
| `backlog` | more waits to be written than `backlog_bytes` |

## What it cannot protect you from

- **Confirmed, and lost all the same.** Valkey and Redis send writes on to replicas after they confirm them. What a
  primary had confirmed in its last moments is gone when it dies: stored blocks are computed anew, but an invalidation
  may be undone. `min-replicas-to-write 1` bounds that. What follows a database (`mmcache sync`) waits for replicas.
- **Other hosts cannot hear.** A host that is cut off serves what it has in memory and on disk: what others invalidated
  meanwhile it forgets when it is back. What rests on rows it stops serving after `news_lease_seconds`.
- **A server that forgets time.** Deadlines do not depend on servers' clocks, but a server whose clock is set forward by
  more than what a block has left and `spare_seconds` has collected it: a miss.
"""


def page(folder: Path) -> str:
    """The page, from `faults.csv` and `faults.json` in `folder`."""
    with (folder / "faults.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    figures = {row["id"]: row["ours"] for row in json.loads((folder / "faults.json").read_text("utf-8"))["rows"]}
    seen: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for line in lines:
        seen[line["fault"]].append(line)
    found = [fault for fault in FAULTS if fault.name in seen]
    total = {name: sum(int(line[name]) for line in lines) for name in ("lookups", "wrong", "stale")}
    text = _BEFORE.format(
        timeout=TIMEOUT_SECONDS, rest=REST_SECONDS, errors=_counts(lines, "errors").total(), **total
    )  # fmt: skip
    parts = [text, "## At a glance", "", _glance(found, seen, figures), ""]
    parts += [_section(fault, seen[fault.name], figures) for fault in found]
    return "\n".join([*parts, _AFTER])


def _glance(faults: Sequence[Fault], seen: Mapping[str, Lines], figures: Mapping[str, float | None]) -> str:
    rows = ["| what happens | hits meanwhile | misses, by reason | puts refused | heals after | hits then |"]
    rows.append("|---|---|---|---|---|---|")
    for fault in faults:
        during = [line for line in seen[fault.name] if line["phase"] in ("during", "writer")]
        rows.append(
            f"| [{fault.name}](#{fault.name}) | {_percent(figures[f'{fault.name}/hits-during'])} "
            f"| {_shares(_counts(during, 'missed'))} | {_shares(_counts(during, 'refused'))} "
            f"| {_seconds(figures[f'{fault.name}/heals'])} | {_percent(figures[f'{fault.name}/hits-after'])} |"
        )
    return "\n".join(rows)


def _section(fault: Fault, lines: Lines, figures: Mapping[str, float | None]) -> str:
    during = [line for line in lines if line["phase"] == "during"]
    said = Counter(text for line in during for text in line["said"].split(" | ") if text)
    told = "\n".join(f"    {text}" for text, _ in said.most_common(3))
    most, slowest = figures[f"{fault.name}/timeouts"], figures[f"{fault.name}/slowest"]
    return (
        f"### {fault.name}\n\n{fault.what[0].upper()}{fault.what[1:]}. **Heals:** {fault.healing} "
        f"Most timeouts of one lookup: {number(most)}; the slowest took {number(slowest)} of the configured timeout."
        + (f" Events say:\n\n{told}\n" if told else "\n")
    )


def _counts(lines: Lines, column: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in lines:
        for word in line[column].split():
            reason, _, count = word.partition("=")
            counts[reason] += int(count)
    return +counts


def _shares(counts: Counter[str]) -> str:
    """Reasons, the most frequent first, with their share."""
    return ", ".join(f"{reason} {100 * count / counts.total():.0f} %" for reason, count in counts.most_common()) or "–"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} %"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1])))
