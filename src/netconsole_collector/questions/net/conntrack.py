"""Question `conntrack`: why connection tracking, or iptables-legacy, refuses a packet.

`entries`, `limit`: how many connections there are, and may be. `full`, `no_port`: whether the counters `drop` and
`insert_failed` moved meanwhile (net/netfilter/nf_conntrack_core.c): the table is full, or another connection has the
addresses and ports that a packet would get. `legacy_table`, `legacy_chain`, `legacy_rule`: the one rule of
iptables-legacy that dropped meanwhile, or the only one that ever has, at ``hook``; without a number
(`is_legacy_policy`) it is the policy of the chain. With ``or_rules``, where none of this is it, also the answer of
`firewall`, of all hooks: before 5.17 the kernel does not tell nftables from these.
"""

import time
from typing import Any, Dict, Iterable, List, Optional

from netconsole_collector.primitives import files
from netconsole_collector.primitives.legacy_firewall import LegacyRule, dropped
from netconsole_collector.questions.known import Json
from netconsole_collector.questions.net import firewall
from netconsole_collector.questions.within import sysctl, within
from netconsole_collector.sources.net.protocol_counters import CONNTRACK, ENTRIES, parse_conntrack

_STATISTICS = b"/proc/thread-self/net/" + CONNTRACK.encode("ascii")
_DROPPED, _NOT_INSERTED = "Conntrackdrop", "Conntrackinsert_failed"
_READINGS, _PAUSE_S = 4, 0.25
_OF_PROTOCOL = {"IPv4": ("ipv4",), "IPv6": ("ipv6",)}


def answer(arguments: Json) -> Any:
    """Of the namespace ``netns``; ``protocol`` is IPv4 or IPv6, and ``hook`` where it drops, where that is known."""
    protocols = _OF_PROTOCOL.get(str(arguments.get("protocol")), ("ipv4", "ipv6"))
    found = within(arguments, lambda: _looked_up(protocols, str(arguments.get("hook"))))
    if arguments.get("or_rules") and not (found["full"] or found["no_port"] or found["legacy_chain"]):
        every = " ".join(firewall.HOOKS)
        found.update(firewall.answer({**arguments, "hook": every}))
        if not found["rules"] and not found["policies"]:  # then it was one of iptables-legacy, at whatever hook
            found.update(within(arguments, lambda: _told(only_one(_dropped(protocols), every))))
    found["limit"] = sysctl("netfilter/nf_conntrack_max")  # of each namespace; the host's is for all
    return found


def _looked_up(protocols: Iterable[str], hook: str) -> Json:
    before = now = _counters()
    rules = rules_before = _dropped(protocols)
    moved: List[LegacyRule] = []
    for _ in range(_READINGS):
        time.sleep(_PAUSE_S)  # for the next packets: nothing tells when a counter moves
        now = _counters()
        rules = _dropped(protocols)
        moved = [one for one, packets in rules.items() if packets > rules_before.get(one, packets)]
        if moved or now.get(_DROPPED, 0) > before.get(_DROPPED, 0):
            break
    failed, refused = (now.get(name, 0) - before.get(name, 0) for name in (_NOT_INSERTED, _DROPPED))
    rule = moved[0] if len(moved) == 1 else None
    if not moved and not now.get(_DROPPED) and not now.get(_NOT_INSERTED):
        rule = only_one(rules, hook)
    return {
        "entries": now.get(ENTRIES),
        "full": refused > failed,
        "no_port": failed > 0,
        **_told(rule),
    }


def _told(rule: Optional[LegacyRule]) -> Json:
    return {
        "legacy_table": rule.table if rule is not None else None,
        "legacy_chain": rule.chain if rule is not None else None,
        "legacy_rule": rule.number if rule is not None else None,
        "is_legacy_policy": rule is not None and rule.number is None,
    }


def only_one(rules: Dict[LegacyRule, int], hook: str) -> Optional[LegacyRule]:
    """The only rule that has ever dropped, if it stands at this hook: for when nothing is dropped any more."""
    known = [one for one, packets in rules.items() if packets]
    return known[0] if len(known) == 1 and known[0].chain.lower() in hook.split() else None


def _dropped(protocols: Iterable[str]) -> Dict[LegacyRule, int]:
    """Empty where the kernel does not tell."""
    found: Dict[LegacyRule, int] = {}
    for one in protocols:
        try:
            found.update(dropped(one))
        except OSError:
            continue
    return found


def _counters() -> Dict[str, int]:
    """Empty where the kernel does not tell."""
    try:
        return dict(parse_conntrack(files.read(_STATISTICS, 1 << 20).decode("ascii")))
    except (OSError, ValueError):
        return {}
