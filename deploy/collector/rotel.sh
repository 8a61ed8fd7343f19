#!/bin/sh
# Run rotel as rotel.env says, in the foreground. It is looked for in $PYTHON's packages (python3 unless that is set).
set -eu
here=$(dirname "$0")
while IFS='=' read -r name value; do
  case $name in
    ROTEL_*) eval "[ -n \"\${$name+set}\" ]" || export "$name=$value" ;;
  esac
done <"$here/rotel.env"
agent=$("${PYTHON:-python3}" -c '
from importlib.util import find_spec
from pathlib import Path
found = find_spec("rotel")
print(Path(found.origin).parent / "rotel-agent" if found and found.origin else "")')
[ -x "$agent" ] || { echo "there is no rotel: pip install rotel" >&2; exit 1; }
exec "$agent" start
