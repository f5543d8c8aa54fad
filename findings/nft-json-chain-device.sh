#!/usr/bin/env bash
# `nft -j list` of nftables 1.0.6 does not say which device a chain of the family netdev filters.
#
# Guess, before it was run: the listing can be read back by `nft -j -f`, so the chain has its "dev", which
# libnftables-json(5) of this version describes.
# Seen: it has all but this. `nft list` without -j says: device "lo". `nft -j -f` refuses the listing of its own
# version, because the device is missing.
# Of two hosts one drops on its uplink and one on the tap of a VM, and what nft says of them in JSON is equal.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/deb/partial"
: >"$work/none"
apt-get -qq -o Dir::State::Status="$work/none" -o Dir::Cache::Archives="$work/deb" -o Debug::NoLocking=1 \
    -o APT::Sandbox::User=root --download-only --no-install-recommends --yes install \
    nftables=1.0.6-2+deb12u2 libnftables1=1.0.6-2+deb12u2 >/dev/null
rm "$work"/deb/libc6_*
for package in "$work"/deb/*.deb; do dpkg-deb -x "$package" "$work/tree"; done
export LD_LIBRARY_PATH="$work/tree/usr/lib/x86_64-linux-gnu:$work/tree/lib/x86_64-linux-gnu" work
export nft="$work/tree/usr/sbin/nft"
"$nft" --version
unshare --net --map-root-user sh -e <<'SHELL'
"$nft" -f - <<'RULES'
table netdev edge {
    chain one { type filter hook ingress device "lo" priority 0; policy accept; }
}
RULES
"$nft" list ruleset >"$work/text"
"$nft" -j list ruleset >"$work/json"
"$nft" flush ruleset
status=0
"$nft" -j -f "$work/json" >"$work/said" 2>&1 || status=$?
echo "$status" >"$work/status"
SHELL
cat "$work/text" "$work/json" "$work/said"
grep -q 'hook ingress device "lo" priority' "$work/text"
test "$(cat "$work/status")" = 1
python3 - "$work/json" <<'PYTHON'
import json
import sys

[chain] = [one["chain"] for one in json.load(open(sys.argv[1]))["nftables"] if "chain" in one]
assert chain["hook"] == "ingress" and "dev" not in chain and "lo" not in chain.values(), chain
print("the JSON of the chain on the device lo names no device")
PYTHON
