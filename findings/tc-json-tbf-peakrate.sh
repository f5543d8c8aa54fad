#!/usr/bin/env bash
# `tc -j qdisc` of iproute2 6.1 leaves out the peak rate of a tbf, and has its key "mpu" twice.
#
# Guess, before it was run: the JSON has what the text has, with a "peakrate" in bytes per second beside the "rate".
# Seen: no key and no value of it. The two shapers below have peaks of 1 and of 2 Gbit/s, and their JSON is
# equal. With -d "mpu" is there twice, for the rate and for the peak, so one of them is lost as well.
# tc(8) says of -j that it displays the results in JSON format, of no part that is missing.
# The peak is what cuts the short bursts of a VM; who compares hosts by this JSON sees no difference where one drops.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/deb/partial"
: >"$work/none"
apt-get -qq -o Dir::State::Status="$work/none" -o Dir::Cache::Archives="$work/deb" -o Debug::NoLocking=1 \
    -o APT::Sandbox::User=root --download-only --no-install-recommends --yes install iproute2=6.1.0-3 >/dev/null
rm "$work"/deb/libc6_*
for package in "$work"/deb/*.deb; do dpkg-deb -x "$package" "$work/tree"; done
export LD_LIBRARY_PATH="$work/tree/usr/lib/x86_64-linux-gnu:$work/tree/lib/x86_64-linux-gnu" tc="$work/tree/sbin/tc"
"$tc" -V
# A network namespace of its own; nothing is sent.
unshare --net --map-root-user bash -euo pipefail >"$work/seen" <<'SHELL'
for peak in 1gbit 2gbit; do
    "$tc" qdisc replace dev lo root handle 1: tbf rate 500mbit burst 100kb latency 20ms peakrate "$peak" mtu 60000b
    "$tc" qdisc show dev lo
    "$tc" -j -d qdisc show dev lo
done
SHELL
cat "$work/seen"
python3 - "$work/seen" <<'PYTHON'
import json
import sys

low, of_low, high, of_high = open(sys.argv[1]).read().splitlines()
assert "peakrate 1Gbit" in low and "peakrate 2Gbit" in high and of_low == of_high
[pairs] = json.loads(of_low, object_pairs_hook=list)
names = [name for name, _ in dict(pairs)["options"]]
assert "rate" in names and "peakrate" not in names and names.count("mpu") == 2, names
print("shapers with peaks of 1 and of 2 Gbit/s have the same JSON")
PYTHON
