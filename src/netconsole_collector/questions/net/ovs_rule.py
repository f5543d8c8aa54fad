"""Question `ovs_rule`: which OpenFlow rule drops, or limits by a meter, what comes in by a port of Open vSwitch.

ovs-vswitchd is asked for the flow of the datapath that loses packets now, and for the way of such a packet through
its tables (ofproto/trace). `flow`: as the datapath has it. `bridge`, `table`, `cookie`, `priority`, `match`: of the
last rule on the way; `match` is "everything" for a rule without one. `is_miss`: no rule of the table fits.
`in_port`: by which port it comes in, where none was named. `meter`: the number of the meter on the way. `says`: what
ovs-vswitchd says of the loss itself. `datapath`: its name.
"""

import re
import time
from typing import Any, Dict, List, NamedTuple, Optional

from netconsole_collector.questions.known import BadQuestion, Json, text
from netconsole_collector.sources.ovs.unixctl import Unixctl, UnixctlError, directories, running_vswitchd
from netconsole_collector.sources.ovs.vswitchd import MAX_FLOWS_DUMPED, USERSPACE, members_in

_READINGS, _PAUSE_S = 4, 0.25
_CURRENT = re.compile(r"^(\S+@.+):\n  flows\s*: \(current (\d+)\)", re.M)
_FLOW = re.compile(r"^(.*?), packets:(\d+), bytes:\d+, .*?actions:(.*)$", re.M)
_IN_PORT = re.compile(r"in_port\(([^)]*)\)")
_BRIDGE = re.compile(r'^bridge\("(.*)"\)$')
_RULE = re.compile(r"^ *(\d+)\. (.*)$")
_RULE_TEXT = re.compile(r"^(?:(?P<match>.*?), )?priority (?P<priority>\d+)(?:, cookie (?P<cookie>0x[0-9a-f]+))?$")
_METER = re.compile(r"^\s+meter:(\d+)$")
_MISS, _SAYS = "No match.", ">> "
_SIGNS = {"drop": "drop", "meter": "meter("}
"""What is in the actions of a flow that loses packets so."""
_ANY_TYPE, _NO_MACS = "packet_type(ns=0,id=0),", "eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),"
_NOTHING: Json = dict.fromkeys(
    ("flow", "in_port", "datapath", "bridge", "table", "cookie", "priority", "match", "is_miss", "meter", "says")
)
_MAX_TEXT = 200


class LosingFlow(NamedTuple):
    """A flow of the datapath: ``match`` as ofproto/trace takes it, and what it has seen so far."""

    match: str
    packets: int


def answer(arguments: Json) -> Any:
    """Of ``port``, the name of a device, or without a name of the datapath in user space; ``by``: drop or meter.

    Nothing is known where ovs-vswitchd is late.
    """
    port, by = text(arguments, "port"), text(arguments, "by")
    if by not in _SIGNS:
        raise BadQuestion("by: expected drop or meter")
    running = running_vswitchd(directories())
    if running is None:
        return _NOTHING
    try:
        unixctl = Unixctl(running.control)
        try:
            return _looked_up(unixctl, port, _SIGNS[by])
        finally:
            unixctl.close()
    except UnixctlError:
        return _NOTHING


def _looked_up(unixctl: Unixctl, port: str, sign: str) -> Json:
    of = next((one.datapath for one in members_in(unixctl.ask("dpif/show")) if one.port == port), None)
    sizes = dict(_CURRENT.findall(unixctl.ask("upcall/show")))
    parts = {name: name.partition("@") for name in sizes}
    fits = (name for name, (kind, _, own) in parts.items() if (own == of if port else kind == USERSPACE))
    full_name = next(fits, None)
    if full_name is None or int(sizes[full_name]) > MAX_FLOWS_DUMPED:
        return _NOTHING  # a larger table would hold up ovs-vswitchd
    match = _losing(unixctl, full_name, port, sign)
    if match is None:
        return _NOTHING
    datapath = full_name.partition("@")[2]
    way = way_in(unixctl.ask("ofproto/trace", datapath, match))
    found = {**_NOTHING, "flow": match, "datapath": datapath, **way}
    in_port = None if port else _IN_PORT.search(match)
    return {**found, "in_port": in_port.group(1)} if in_port else found


def _losing(unixctl: Unixctl, datapath: str, port: str, sign: str) -> Optional[str]:
    """The flow by which most are lost meanwhile."""
    before = {one.match: one.packets for one in _flows(unixctl, datapath, port, sign)}
    for _ in range(_READINGS):
        time.sleep(_PAUSE_S)  # for the next packets: nothing tells when a counter moves
        now = _flows(unixctl, datapath, port, sign)
        moved = {one.match: one.packets - before.get(one.match, 0) for one in now}
        most = max(moved, key=lambda one: moved[one], default=None)
        if most is not None and moved[most] > 0:
            return most
    return None


def _flows(unixctl: Unixctl, datapath: str, port: str, sign: str) -> List[LosingFlow]:
    told = unixctl.ask("dpctl/dump-flows", "--names", datapath)
    return [
        LosingFlow(_traceable(match), int(packets))
        for match, packets, actions in _FLOW.findall(told)
        if sign in actions and "in_port({}".format(port + ")" if port else "") in match
    ]


def _traceable(match: str) -> str:
    """Of a frame: one that matches no MAC is taken for a packet without a link header else."""
    match = match.replace(_ANY_TYPE, "")
    return match if ",eth(" in match else match.replace("eth_type(", _NO_MACS + "eth_type(", 1)


def way_in(told: str) -> Json:
    """The last rule on the way, and what is said of the loss (ofproto/ofproto-dpif-trace.c)."""
    found: Dict[str, Any] = {}
    bridge = None
    for line in told.splitlines():
        heading, step, meter = _BRIDGE.match(line), _RULE.match(line), _METER.match(line)
        if heading:
            bridge = heading.group(1)
        elif step:
            rule = _RULE_TEXT.match(step.group(2))
            found.update(bridge=bridge, table=int(step.group(1)), is_miss=step.group(2) == _MISS, says=None)
            found.update(match=None, priority=None, cookie=None)
            if rule:
                found.update(
                    match=(rule.group("match") or "everything")[:_MAX_TEXT], priority=int(rule.group("priority"))
                )
                found["cookie"] = rule.group("cookie") or "0x0"
        elif meter:
            found["meter"] = int(meter.group(1))
        elif line.lstrip().startswith(_SAYS):
            found["says"] = line.lstrip(" >").strip().rstrip(".")[:_MAX_TEXT]
    return found
