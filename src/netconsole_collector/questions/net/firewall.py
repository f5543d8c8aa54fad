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
from netconsole_collector.sources.net.netlink_messages import attribute
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
MANY_RULES = 64
"""So many are read again one by one; of more their chains are."""
_RULE_HANDLE = 3
_SIGNS_OF_DROPPING = (struct.pack("=HHi", 8, 1, _DROP), b"reject\0", b"target\0", b"lookup\0")
"""In a rule: the verdict drop, and what may have one."""

_Chain = Tuple[int, str, str]
"""Family, table and name."""


class _Base(NamedTuple):
    hook: int
    device: str
    drops: bool
    kind: str
    """filter, nat or route."""


class _Walk(NamedTuple):
    """What packets may come through: rules that may drop such a packet, in the order of their chains, and policies.

    ``unlike``: how many rules may drop other packets.
    """

    rules: "List[CountedRule]"
    policies: List[_Chain]
    unlike: int


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
        walked = _walk(netlink, {HOOKS[one] for one in hooks}, families, device, packet)
        before = {(one.chain, one.handle): one for one in up_to_the_first(walked.rules)}
        ended = {one.chain for one in walked.rules if one.is_certain}
        policies = [one for one in walked.policies if one not in ended]
        began, invalid = time.monotonic(), _invalid()
        moved: List[CountedRule] = []
        now = list(before.values())
        for _ in range(_READINGS):
            time.sleep(_PAUSE_S)  # for the next packets: nothing tells when a counter moves
            now = _again(netlink, list(before.values()), packet)
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
    others = len(silent) + walked.unlike if moved else len(before) + len(policies) - 1
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


def _walk(netlink: Netlink, hooks: Set[int], families: Tuple[int, ...], device: str, packet: Packet) -> _Walk:
    """Chain by chain, from those at these hooks on: only where such a packet may come is looked at."""
    known = dict(_chains(netlink))
    bases = {
        chain: base for chain, base in known.items() if base is not None
        and ((chain[0] in families and base.hook in hooks) or (chain[0] in (5, 7) and base.device in ("", device)))
    }  # fmt: skip
    found: List[CountedRule] = []
    unlike, looked = 0, 0
    reached, waiting = set(bases), list(bases)
    while waiting and looked < MAX_RULES:
        chain = waiting.pop()
        every = enumerate(netlink.dump(_GET_RULE, _request(chain)), looked)
        for body in [bytes(body) for count, body in every if count < MAX_RULES]:
            looked += 1
            rule = _parsed(body, packet)
            if rule is None:
                unlike += _may_drop(body)
                continue
            found += [rule] if rule.drops else []
            # Of a map of verdicts the map alone knows where it leads.
            of_map = [one[2] for one in known if one[:2] == chain[:2]] if rule.jumps_by_map else []
            for name in (*rule.jumps, *of_map):
                to = (*chain[:2], name)
                if to not in reached:
                    reached.add(to)
                    waiting.append(to)
    return _Walk(found, [chain for chain, base in bases.items() if base.drops], unlike)


def _again(netlink: Netlink, rules: List[CountedRule], packet: Packet) -> List[CountedRule]:
    """Those of these rules that count, as they are now; without those that are gone."""
    counting = [one for one in rules if one.packets is not None]
    if len(counting) > MANY_RULES:
        bodies = [bytes(body) for chain in {one.chain for one in counting}
                  for body in netlink.dump(_GET_RULE, _request(chain))]  # fmt: skip
    else:
        bodies = [body for one in counting for body in _one(netlink, one)]
    handles = {(one.chain, one.handle) for one in counting}
    now = [_parsed(body, packet) for body in bodies]
    return [one for one in now if one is not None and (one.chain, one.handle) in handles]


def _one(netlink: Netlink, rule: CountedRule) -> List[bytes]:
    try:
        handle = attribute(_RULE_HANDLE, struct.pack("!Q", rule.handle))
        return [bytes(netlink.ask(_GET_RULE, _request(rule.chain) + handle))]
    except FileNotFoundError:
        return []  # it is gone


def _request(chain: _Chain) -> bytes:
    """For the rules of one chain."""
    family, *names = chain
    return _HEAD.pack(family, 0, 0) + b"".join(
        attribute(kind, name.encode("utf-8", "surrogateescape") + b"\0") for kind, name in enumerate(names, 1)
    )


def base_chains(netlink: Netlink) -> Iterator[Tuple[_Chain, _Base]]:
    """Those that begin at a hook; the others are jumped to. Raises OSError."""
    return ((chain, base) for chain, base in _chains(netlink) if base is not None)


def _chains(netlink: Netlink) -> Iterator[Tuple[_Chain, Optional[_Base]]]:
    """All of them; None of one that is jumped to."""
    for body in netlink.dump(_GET_CHAIN, _HEAD.pack(socket.AF_UNSPEC, 0, 0)):
        values = dict(attributes(bytes(body), _HEAD.size))
        chain = _HEAD.unpack_from(body)[0], _name(values.get(1)), _name(values.get(3))
        if 4 not in values:  # NFTA_CHAIN_HOOK
            yield chain, None
            continue
        hook = dict(attributes(values[4], 0))
        yield chain, _Base(_whole(hook.get(1)), _name(hook.get(3)), values.get(5) == bytes(4), _name(values.get(7)))


def _may_drop(body: bytes) -> bool:
    """Whether a rule that is not looked into any further may drop something."""
    return any(sign in body for sign in _SIGNS_OF_DROPPING)


def _parsed(body: bytes, packet: Packet) -> Optional[CountedRule]:
    """None of a rule that cannot match such a packet."""
    values = dict(attributes(body, _HEAD.size))
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
            if not match.is_possible:
                return None
    is_certain = drops and match.is_certain and not may_pass
    handle = _whole(values.get(_RULE_HANDLE))
    return CountedRule(chain, handle, drops, tuple(jumps), by_map, packets, of_invalid, is_certain)


def _name(value: Optional[bytes]) -> str:
    """As :func:`_request` gives it back: names of tables and chains may be any bytes."""
    return (value or b"").rstrip(b"\0").decode("utf-8", "surrogateescape")


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
