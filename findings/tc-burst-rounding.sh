#!/usr/bin/env bash
# tc of iproute2 6.1 says a burst that is smaller than the one that was set, and sets none at all at 10 Gbit/s.
#
# Guess, before it was run: a class with "burst 15360b" is shown with that burst, give or take a percent.
# Seen: 13750b at 10 Gbit/s. Whoever writes back what tc shows gets 12500b, then 11Kb, then 10000b, down to nothing:
# to save and restore the classes of a host, or to set what is there again, takes the bursts away bit by bit.
# A class without "burst" gets 1375b at 1 Gbit/s and 0b at 10 Gbit/s and above.
# The kernel keeps a burst as the time that it takes at this rate, in ticks of 64 ns. tc cuts this time to whole
# microseconds, once when it sets it and once more when it shows it, and 1 us at 10 Gbit/s is 1250 bytes. tc-htb(8)
# calls it an amount of bytes and says nothing of this. Later versions of tc calculate it with fractions.
# A shaped port of a fast hypervisor may have no burst, so that it falls short of its rate, and its text does not match.
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
unshare --net --map-root-user bash -euo pipefail >"$work/seen" 2>"$work/said" <<'SHELL'
shown() { "$tc" class show dev lo | sed -n 's/.* burst \([^ ]*\) .*/\1/p'; }
"$tc" qdisc add dev lo root handle 1: htb r2q 100000
burst=15360b
for _ in 1 2 3 4; do
    "$tc" class replace dev lo parent 1: classid 1:1 htb rate 10gbit burst "$burst"
    echo "10 Gbit/s, burst $burst: $(shown)"
    burst=$(shown)
done
for rate in 1 10 100; do
    "$tc" class replace dev lo parent 1: classid 1:1 htb rate "${rate}gbit"
    echo "$rate Gbit/s, no burst: $(shown)"
done
SHELL
cat "$work/said" "$work/seen"
diff "$work/seen" - <<'SEEN'
10 Gbit/s, burst 15360b: 13750b
10 Gbit/s, burst 13750b: 12500b
10 Gbit/s, burst 12500b: 11Kb
10 Gbit/s, burst 11Kb: 10000b
1 Gbit/s, no burst: 1375b
10 Gbit/s, no burst: 0b
100 Gbit/s, no burst: 0b
SEEN
