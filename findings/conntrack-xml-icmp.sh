#!/usr/bin/env bash
# `conntrack -o xml` of conntrack-tools 1.4.7 tells one ping from another by nothing: ICMP has no type, code or id.
#
# Guess, before it was run: the XML has all that the text has, so "layer4" has these three as it has the ports of TCP.
# Seen: it is empty. Two tracked pings between the same addresses, and one of ICMPv6, have their kind and identifier in
# the text of `conntrack -L` alone; in the XML the two differ by nothing but the number of the entry in the kernel.
# The kernel sends the three figures for both forms (net/netfilter/nf_conntrack_proto_icmp.c: icmp_tuple_to_nlattr), and
# conntrack(8) calls XML an output format, not one of less content.
# A console that follows a ping through a host's NAT by this output takes the ping of another process for its own.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/deb/partial"
: >"$work/none"
apt-get -qq -o Dir::State::Status="$work/none" -o Dir::Cache::Archives="$work/deb" -o Debug::NoLocking=1 \
    -o APT::Sandbox::User=root --download-only --no-install-recommends --yes install \
    conntrack=1:1.4.7-1+b2 libnetfilter-conntrack3=1.0.9-3 >/dev/null
rm "$work"/deb/libc6_*
for package in "$work"/deb/*.deb; do dpkg-deb -x "$package" "$work/tree"; done
export LD_LIBRARY_PATH="$work/tree/usr/lib/x86_64-linux-gnu:$work/tree/lib/x86_64-linux-gnu" work
export conntrack="$work/tree/usr/sbin/conntrack"
"$conntrack" --version
# A network namespace of its own; the entries are made by hand, and nothing is sent.
unshare --net --map-root-user bash -euo pipefail 2>"$work/said" <<'SHELL'
for id in 7 8; do
    "$conntrack" -I -s 192.0.2.1 -d 192.0.2.2 -p icmp --icmp-type 8 --icmp-code 0 --icmp-id "$id" -t 100
done
"$conntrack" -I -s 2001:db8::1 -d 2001:db8::2 -p icmpv6 --icmpv6-type 128 --icmpv6-code 0 --icmpv6-id 9 -t 100
"$conntrack" -L >"$work/text"
"$conntrack" -L -o xml >"$work/xml"
SHELL
cat "$work/text" "$work/xml"
python3 - "$work/text" "$work/xml" <<'PYTHON'
import sys
import xml.etree.ElementTree as ElementTree

text = open(sys.argv[1]).read()
assert all(f"type={kind} code=0 id={number} " in text for kind, number in ((8, 7), (8, 8), (128, 9))), text
flows = ElementTree.parse(sys.argv[2]).getroot().findall("flow")
assert len(flows) == 3
for layer in ElementTree.parse(sys.argv[2]).getroot().iter("layer4"):
    assert set(layer.attrib) == {"protonum", "protoname"} and not len(layer) and not layer.text, layer.attrib
names = {element.tag for flow in flows for element in flow.iter()}
assert not names & {"type", "code", "icmpid"}, names
pings = [ElementTree.tostring(flow.find("meta[@direction='original']")) for flow in flows]
print(f"{len(pings)} pings in the XML, {len(set(pings))} of them different")
assert len(set(pings)) == 2
PYTHON
