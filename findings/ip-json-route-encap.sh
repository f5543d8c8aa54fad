#!/usr/bin/env bash
# `ip -j route` of iproute2 6.1 names the tunnel's far end as the destination of a route with an encapsulation.
#
# Guess, before it was run: the encapsulation is an object of its own, or its keys have names of their own.
# Seen: "dst" is twice in the object of the route, first the destination 10.25.0.0/16, then 10.9.0.9, to which the
# packets go inside a tunnel. A parser keeps one of two equal keys, mostly the last: for Python's json and for jq the
# route to 10.25.0.0/16 is not in the table, and there is a route to the host 10.9.0.9, which is not in the kernel.
# `ip -j route get 10.25.0.1` likewise answers for 10.9.0.9. `ip route` without -j tells the two apart.
# On a hypervisor these are the routes of an overlay without a device for each tunnel (LWT, of VXLAN or of GENEVE).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/deb/partial"
: >"$work/none"
apt-get -qq -o Dir::State::Status="$work/none" -o Dir::Cache::Archives="$work/deb" -o Debug::NoLocking=1 \
    -o APT::Sandbox::User=root --download-only --no-install-recommends --yes install iproute2=6.1.0-3 >/dev/null
rm "$work"/deb/libc6_*
for package in "$work"/deb/*.deb; do dpkg-deb -x "$package" "$work/tree"; done
export LD_LIBRARY_PATH="$work/tree/usr/lib/x86_64-linux-gnu:$work/tree/lib/x86_64-linux-gnu" ip="$work/tree/bin/ip"
"$ip" -V
# A network namespace of its own; the tunnel is only named by the route, and no packet is sent.
unshare --net --map-root-user sh -e >"$work/seen" <<'SHELL'
"$ip" link set lo up
"$ip" route add 10.25.0.0/16 encap ip id 5 dst 10.9.0.9 ttl 5 dev lo
"$ip" route
"$ip" -j route
"$ip" -j route get 10.25.0.1
SHELL
cat "$work/seen"
python3 - "$work/seen" <<'PYTHON'
import json
import sys

text, *answers = open(sys.argv[1]).read().splitlines()
assert text.split()[0] == "10.25.0.0/16" and " dst 10.9.0.9 " in text
for answer, asked in zip(answers, ("10.25.0.0/16", "10.25.0.1"), strict=True):
    [pairs] = json.loads(answer, object_pairs_hook=list)
    assert [value for key, value in pairs if key == "dst"] == [asked, "10.9.0.9"]
    [route] = json.loads(answer)
    assert route["dst"] == "10.9.0.9"
print("the route to 10.25.0.0/16 is one to 10.9.0.9 for a JSON parser")
PYTHON
