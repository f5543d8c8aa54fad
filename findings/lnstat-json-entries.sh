#!/usr/bin/env bash
# `lnstat -j` of iproute2 6.1 puts the counters of all files into one object, so that equal names replace one another.
#
# Guess, before it was run: an object for each file of /proc/net/stat, as the table of lnstat has a heading for each.
# Seen: one flat object without the names of the files. "entries" is in it once for each file, and a JSON parser keeps
# one of them, mostly the last: the number of tracked connections is replaced by that of another table.
# lnstat(8) says of -j only that it displays the results in JSON. Without -j each column is below the name of its file.
# The table of tracked connections that is full is what drops the first packets of new ones on a host with many VMs;
# a monitor that reads "entries" here watches another table, mostly the cache of routes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq iproute2=6.1.0-3 2>/dev/null
dpkg-deb -x iproute2_*.deb tree
echo "lnstat of iproute2 $(dpkg-deb -f iproute2_*.deb Version)"
# Its exit status is 1 also when all went well (misc/lnstat.c: the last line of main).
tree/usr/bin/lnstat --json --count 1 --interval 1 >json || test $? = 1
cat json
python3 - json /proc/net/stat <<'PYTHON'
import json
import pathlib
import sys

heads = {file.name: file.read_text().split("\n")[0].split() for file in pathlib.Path(sys.argv[2]).iterdir()}
with_entries = sorted(name for name, head in heads.items() if "entries" in head)
assert len(with_entries) > 1, f"this kernel has too few of these files: {with_entries}"
pairs = json.load(open(sys.argv[1]), object_pairs_hook=list)
kept = dict(pairs)
told = [value for name, value in pairs if name == "entries"]
assert len(told) == len(with_entries), (told, with_entries)
assert not any(isinstance(value, (list, dict)) for value in kept.values()) and not set(kept) & set(heads)
print(f"{len(with_entries)} files have entries ({', '.join(with_entries)}); {told} becomes {kept['entries']}")
PYTHON
