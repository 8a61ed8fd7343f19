"""`import mmcache` in fresh interpreters: how long, and what it pulls in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from mmcache.lab.bench import main
from mmcache.lab.table import Progress, Result, Row, Table

HEAVY = ("torch", "redis", "opentelemetry", "scipy", "PIL", "av", "soundfile", "matplotlib", "rich", "cyclopts")
PROBE = f"""
import json, sys, time
start = time.perf_counter()
import {{module}}
seconds = time.perf_counter() - start
print(json.dumps([seconds, [name for name in {HEAVY!r} if name in sys.modules]]))
"""


def probe(module: str) -> tuple[float, list[str]]:
    """Seconds that importing `module` takes in a new interpreter, and the heavy packages that came with it."""
    page = subprocess.run([sys.executable, "-c", PROBE.format(module=module)], check=True, capture_output=True)
    seconds, heavy = json.loads(page.stdout)
    return seconds, heavy


class ImportTime(Table):
    """Start-up cost, beside what numpy alone costs."""

    name = "bench-import_time"
    title = "What does `import mmcache` cost?"
    default_seeds = (0,)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        rounds = 5 if quick else 15
        seconds: dict[str, list[float]] = {"mmcache": [], "numpy": [], "cachetools": [], "diskcache": [], "joblib": []}
        heavy: set[str] = set()
        for done in range(rounds):
            for module, samples in seconds.items():
                taken, pulled = probe(module)
                samples.append(1e3 * taken)
                if module == "mmcache":
                    heavy.update(pulled)
            progress(self.name, done + 1, rounds)
        rows = [Row.of("import/mmcache", "import mmcache", "ms", "lower", seconds.pop("mmcache"), target=150)]
        rows += [Row.of(f"import/{name}", f"import {name}", "ms", "lower", taken) for name, taken in seconds.items()]
        metric = "heavy packages pulled in" + (f": {', '.join(sorted(heavy))}" if heavy else "")
        rows.append(Row.of("import/heavy", metric, "packages", "lower", len(heavy), target=0))
        return Result(
            self.name, quick, tuple(seeds), (f"{rounds} fresh interpreters a package, interleaved",), (), tuple(rows)
        )


if __name__ == "__main__":
    sys.exit(main(ImportTime()))
