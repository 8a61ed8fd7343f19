"""Ask an access log which policy, how much memory and which lifetime would have served it best."""

import tempfile
from pathlib import Path

from mmcache.lab.advice import study
from mmcache.lab.advice.words import config, headline
from mmcache.lab.traces.log import read_log
from mmcache.lab.traces.synthetic import log_lines

with tempfile.TemporaryDirectory() as folder:
    log = Path(folder) / "access.jsonl"  # yours: CSV or JSON lines with a key, and time, bytes, cost… where known
    log.write_text("\n".join(log_lines(5000)) + "\n")
    found = study(read_log(log))

print(f"Advised: {headline(found)}.")
for name, point in sorted(found.at.items(), key=lambda item: -item[1].saved):
    print(f"  {name:<16} saves {point.saved:.1%} of the compute; no cache of that size more than {found.bound:.1%}")
print(config(found))
assert found.best.saved <= found.bound
