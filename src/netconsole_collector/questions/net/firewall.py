"""Question `firewall`: which rule or policy of nftables drops at a hook: the one whose counter moves.

All chains that begin at the hook are looked at, and those that they jump to, twice within a second. Rules that a packet
like the latest one cannot match are left out (`rule_match.py`), and so is what stands in a chain behind a rule that
drops every such packet.
`family`, `table`, `chain`, `handle`, `rule`: of the rule that dropped (`rule` as nft writes it, null without nft).
`is_policy`: it is the policy of the chain. `remains`: it is not proved yet. Either it alone has no counter, and no
counter has moved: so it is it if packets were dropped meanwhile. Or its counter moved, by `counted_per_s`, and others
may have dropped, too: so it is it if not many more were lost. Where all count and none moves, it is the only one that
has ever dropped. `moved`: how many rules that drop have counted meanwhile.
`rules`: how many there are, `uncounted`: how many of them have no counter. `policies`: chains whose policy drops.
"""

import re
import socket
import struct
import subprocess
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

from netconsole_collector.primitives import files
from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.questions.known import BadQuestion, Json
from netconsole_collector.questions.net.rule_match import Packet, RuleMatch, is_plain, packet_of
from netconsole_collector.questions.within import sysctl, within
from netconsole_collector.sources.net.protocol_counters import parse_conntrack

NETLINK_NETFILTER = 12
_GET_CHAIN, _GET_RULE = 10 << 8 | 4, 10 << 8 | 7  # NFNL_SUBSYS_NFTABLES; NFT_MSG_GETCHAIN, NFT_MSG_GETRULE
_HEAD = struct.Struct("=BBH")
FAMILIES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
_ARP = "ARP"
_OF_PROTOCOL = {"IPv4": (1, 2), "IPv6": (1, 10), _ARP: (3,)}
_REFUSING = ("DROP", "REJECT", "SYNPROXY", "TARPIT", "TPROXY")
"""Targets of iptables that drop: TPROXY what no socket takes."""
_ALWAYS_REFUSING = ("DROP", "REJECT")
HOOKS = {"prerouting": 0, "input": 1, "forward": 2, "output": 3, "postrouting": 4}
_DROP, _JUMP, _GOTO = 0, -3, -4
_INVALID = 1  # NF_CT_STATE_INVALID_BIT
_READINGS, _PAUSE_S = 4, 0.25
_NFT = ("/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft")
_NFT_S = 5.0
_MAX_RULE = 200
_COUNTER = re.compile(r"\bcounter (packets [0-9]+ bytes [0-9]+ )?")
"""In the text of a rule: what it has counted says nothing of what it does."""
MAX_RULES = 20000

_Chain = Tuple[int, str, str]
"""Family, table and name."""


class _Base(NamedTuple):
    hook: int
    device: str
    drops: bool
    kind: str
    """filter, nat or route."""


class CountedRule(NamedTuple):
    """``packets``: None without a counter of what it drops. ``jumps_by_map``: to chains that its map names.

    ``of_invalid``: it is of packets alone that conntrack calls invalid, and counts. ``is_certain``: it drops every
    packet like this one.
    """

    chain: _Chain
    handle: int
    drops: bool
    jumps: Tuple[str, ...]
    jumps_by_map: bool
    packets: Optional[int]
    of_invalid: bool = False
    is_certain: bool = False


def answer(arguments: Json) -> Any:
    """Of packets of ``protocol`` (IPv4, IPv6) at ``hook``, at ``device`` where that matters; ``none``: at a bridge.

    ``transport``, ``source``, ``target``, ``source_port``, ``target_port``: of one of them, as far as they are known.
    """
    hook, protocol, device = (str(arguments.get(name, "")) for name in ("hook", "protocol", "device"))
    wanted = [one for one in HOOKS if one in hook.split()]  # "prerouting or input": the kernel does not tell them apart
    if not wanted and hook not in ("", "none"):
        raise BadQuestion("hook: expected one or more of {}, or none".format(", ".join(HOOKS)))
    if protocol == _ARP:
        wanted = list(HOOKS)[:3]  # it has an input, an output and a forward, with numbers of their own
    packet = packet_of(arguments)
    return within(arguments, lambda: _looked_up(wanted, _OF_PROTOCOL.get(protocol, (1, 2, 10)), device, packet))


def _looked_up(hooks: List[str], families: Tuple[int, ...], device: str, packet: Packet) -> Json:
    """Without a hook it is a bridge that lost them: rules of IP see them where it shows them to these, by a setting."""
    if not hooks and any(sysctl("bridge/bridge-nf-call-" + one) for one in ("iptables", "ip6tables")):
        hooks = list(HOOKS)
    netlink = Netlink(NETLINK_NETFILTER)
    try:
        reached, policies = _reached(netlink, {HOOKS[one] for one in hooks}, families, device, packet)
        alike = _dropping(netlink, reached, packet)
        unlike = len(_dropping(netlink, reached, {})) - len(alike)
        before = {(one.chain, one.handle): one for one in up_to_the_first(alike)}
        ended = {one.chain for one in alike if one.is_certain}
        policies = [one for one in policies if one not in ended]
        began, invalid = time.monotonic(), _invalid()
        moved: List[CountedRule] = []
        now = list(before.values())
        for _ in range(_READINGS):
            time.sleep(_PAUSE_S)  # for the next packets: nothing tells when a counter moves
            now = up_to_the_first(_dropping(netlink, reached, packet))
            moved = [one for one in now if _counted(before, one)]
            if moved:
                break
        seconds = time.monotonic() - began
    finally:
        netlink.close()
    uncounted = [one for one in before.values() if one.packets is None]
    if _invalid() == invalid:  # so it was none of their rules
        uncounted = [one for one in uncounted if not one.of_invalid]
    found: Json = {"moved": len(moved), "rules": len(before), "uncounted": len(uncounted), "policies": len(policies)}
    found.update(dict.fromkeys(("family", "table", "chain", "handle", "rule")), is_policy=False)
    silent: List[Union[CountedRule, _Chain]] = [*uncounted, *policies]  # no counter of theirs could have moved
    one = moved[0] if len(moved) == 1 else silent[0] if not moved and len(silent) == 1 else None
    others = len(silent) + unlike if moved else len(before) + len(policies) - 1
    if not moved and not silent:
        one, others = only_one(now), 0
    found.update(
        remains=one is not None and others > 0, counted_per_s=_counted(before, moved[0]) / seconds if moved else 0
    )
    if isinstance(one, CountedRule):
        found.update(_where(one.chain), handle=one.handle, rule=_as_text(one))
    elif one is not None:
        found.update(_where(one), is_policy=True)
    return found


def _invalid() -> int:
    """What conntrack has called invalid in the namespace of the calling thread."""
    try:
        content = files.read(b"/proc/thread-self/net/stat/nf_conntrack", 65536).decode("ascii")
    except (OSError, ValueError):
        return 0
    return dict(parse_conntrack(content)).get("Conntrackinvalid", 0)


def up_to_the_first(rules: List[CountedRule]) -> List[CountedRule]:
    """Without those that stand in their chain behind one that drops every such packet: none reaches them."""
    found, ended = [], set()  # type: List[CountedRule], Set[_Chain]
    for one in rules:
        if one.chain not in ended:
            found.append(one)
        if one.is_certain:
            ended.add(one.chain)
    return found


def only_one(rules: List[CountedRule]) -> Optional[CountedRule]:
    """The only one that has ever dropped, of rules that all count: for when nothing is dropped any more."""
    known = [one for one in rules if one.packets]
    return known[0] if len(known) == 1 else None


def _where(chain: _Chain) -> Json:
    """Names with which nobody can type a command are not told."""
    table, name = (one if is_plain(one) else None for one in chain[1:])
    return {"family": FAMILIES.get(chain[0], str(chain[0])), "table": table, "chain": name}


def _counted(before: Dict[Tuple[_Chain, int], CountedRule], now: CountedRule) -> int:
    """What a rule has counted since the first reading."""
    known = before.get((now.chain, now.handle))
    return max(0, (now.packets or 0) - ((known.packets or 0) if known is not None else 0))


def _reached(
    netlink: Netlink, hooks: Set[int], families: Tuple[int, ...], device: str, packet: Packet
) -> Tuple[Set[_Chain], List[_Chain]]:
    """The chains that packets at these hooks may come through, and those of them whose policy drops."""
    bases = {
        chain: base for chain, base in base_chains(netlink)
        if (chain[0] in families and base.hook in hooks) or (chain[0] in (5, 7) and base.device in ("", device))
    }  # fmt: skip
    jumps: Dict[_Chain, Set[str]] = {}
    rules = list(_rules(netlink, packet))
    for rule in rules:
        jumps.setdefault(rule.chain, set()).update(rule.jumps)
        if rule.jumps_by_map:  # which ones, the map alone knows
            jumps[rule.chain].update(one.chain[2] for one in rules if one.chain[:2] == rule.chain[:2])
    reached, waiting = set(bases), list(bases)
    while waiting:
        family, table, _ = chain = waiting.pop()
        for name in jumps.get(chain, ()):
            if (family, table, name) not in reached:
                reached.add((family, table, name))
                waiting.append((family, table, name))
    return reached, [chain for chain, base in bases.items() if base.drops]


def base_chains(netlink: Netlink) -> Iterator[Tuple[_Chain, _Base]]:
    """Those that begin at a hook; the others are jumped to. Raises OSError."""
    for body in netlink.dump(_GET_CHAIN, _HEAD.pack(socket.AF_UNSPEC, 0, 0)):
        values = dict(attributes(bytes(body), _HEAD.size))
        if 4 not in values:  # NFTA_CHAIN_HOOK: others are jumped to
            continue
        hook = dict(attributes(values[4], 0))
        chain = _HEAD.unpack_from(body)[0], _name(values.get(1)), _name(values.get(3))
        yield chain, _Base(_whole(hook.get(1)), _name(hook.get(3)), values.get(5) == bytes(4), _name(values.get(7)))


def _dropping(netlink: Netlink, chains: Set[_Chain], packet: Packet) -> List[CountedRule]:
    return [one for one in _rules(netlink, packet) if one.drops and one.chain in chains]


def _rules(netlink: Netlink, packet: Packet) -> Iterator[CountedRule]:
    """Those that may match such a packet."""
    for count, body in enumerate(netlink.dump(_GET_RULE, _HEAD.pack(socket.AF_UNSPEC, 0, 0))):
        if count >= MAX_RULES:
            continue
        values = dict(attributes(bytes(body), _HEAD.size))
        chain = _HEAD.unpack_from(body)[0], _name(values.get(1)), _name(values.get(2))
        drops, jumps, packets = False, [], None  # type: bool, List[str], Optional[int]
        by_map, match, loads_state, of_invalid, may_pass = False, RuleMatch(packet), False, False, False
        for _, element in attributes(values.get(4, b""), 0):
            expression = dict(attributes(element, 0))
            name, data = _name(expression.get(1)), dict(attributes(expression.get(2, b""), 0))
            if name == "ct":
                loads_state = data.get(2) == bytes(4)  # NFT_CT_STATE
            elif name == "bitwise" and loads_state:
                mask = dict(attributes(data.get(4, b""), 0)).get(1)  # NFTA_BITWISE_MASK
                of_invalid = mask == struct.pack("=I", _INVALID)
            if name == "counter":
                packets = _whole(data.get(2))
            elif name == "reject":
                drops = True
            elif name == "target" and _name(data.get(1)) in _REFUSING:
                drops = True
                may_pass = _name(data.get(1)) not in _ALWAYS_REFUSING
            elif name == "immediate":
                verdict = dict(attributes(dict(attributes(data.get(2, b""), 0)).get(2, b""), 0))
                code = struct.unpack(">i", verdict[1])[0] if len(verdict.get(1, b"")) == 4 else None
                drops = drops or code == _DROP
                if code in (_JUMP, _GOTO):
                    jumps.append(_name(verdict.get(2)))
            elif name == "lookup" and 3 in data and data[3] == bytes(4):
                drops = by_map = may_pass = True  # a map of verdicts: one of them may drop, or jump
            elif match.narrows(name, data):
                packets = None  # it has counted others, too
        if match.is_possible:
            is_certain = drops and match.is_certain and not may_pass
            yield CountedRule(
                chain, _whole(values.get(3)), drops, tuple(jumps), by_map, packets, of_invalid, is_certain
            )


def _name(value: Optional[bytes]) -> str:
    return (value or b"").rstrip(b"\0").decode("utf-8", "backslashreplace")


def _whole(value: Optional[bytes]) -> int:
    """Of this protocol, numbers are in network byte order."""
    return int.from_bytes(value or b"", "big")


def _as_text(rule: CountedRule) -> Optional[str]:
    """As nft(8) writes it, where that is installed. It runs in the namespace of the calling thread."""
    family, table, chain = rule.chain
    if not is_plain(table) or not is_plain(chain):
        return None
    for program in _NFT:
        try:
            run = subprocess.run(
                [program, "-a", "list", "chain", FAMILIES.get(family, ""), table, chain],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_NFT_S,
            )  # fmt: skip
        except FileNotFoundError:
            continue
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
        for line in run.stdout.decode("utf-8", "backslashreplace").splitlines():
            told, _, handle = line.rpartition(" # handle ")
            if handle.strip() == str(rule.handle) and not told.lstrip().startswith("chain "):
                return _COUNTER.sub("", told.strip())[:_MAX_RULE]
        return None
    return None
