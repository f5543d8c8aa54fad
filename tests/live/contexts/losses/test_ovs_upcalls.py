"""ovs_upcalls on a datapath of the test's own: upcalls, what is handed over, answers and their time."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

import pytest

from tests.support.live.contexts.budgets import FEW, MANY, spend_events, spend_time
from tests.support.live.contexts.datapath import LINK, OWN
from tests.support.live.contexts.filters import BY_FRAME, FILTERS, FLOWS, FRAMES, NETNS, OTHER_NETNS
from tests.support.live.contexts.moments import MS, Span, at, elapsed, lies, wait
from tests.support.live.contexts.ovs_types import FLOW, FOR_USER_SPACE, MISS, flow_key
from tests.support.live.contexts.packets import Flow
from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu
from tests.support.live.contexts.upcalls import AS_FUNCTIONS, BEFORE, BY_LINK, BY_OWN, FLOW6, Upcalls

PROBE = "ovs_upcalls"
Load = Callable[..., UnattachedProbe]

HANDED = ("upcalls", "failed", "packets")
ENDS = ("answered", "dropped", "unanswered", "late")


@pytest.mark.proves(
    "ovs_upcalls",
    "counters.{upcalls,failed,packets,answered}",
    "tables.upcalls.{datapath,port,netns,kind,upcalls,failed,packets,answered}",
    "tables.failures.{datapath,port,netns,error,kind,count}",
    "tables.cpus.{datapath,kind,cpu,upcalls,failed}",
    "modes.summary",
)
def test_upcalls_are_counted_where_they_come_from_and_with_what_became_of_them(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    one, skb = Flow(), host.copy(Flow())
    for _ in range(3):
        host.upcall(one)
    host.answer(one)
    host.answer(one)
    host.ask(one, BY_OWN, FOR_USER_SPACE)
    host.hand_over(*[host.copy(one, one.packet(number)) for number in (1, 2, 3)])  # a large one, in segments
    with on_cpu(1):
        host.ask(one)
        host.hand_over(error=-errno.ECONNREFUSED)
        host.ask(one)
        host.hand_over(skb, host.copy(one, one.packet(9)), error=-errno.EAGAIN)  # the last one is refused
    host.ask(one, BY_OWN, FOR_USER_SPACE)
    host.hand_over(skb, error=-errno.EAGAIN)
    host.hand_over(skb, error=-errno.EAGAIN)  # of no upcall
    assert host.row(*HANDED, "answered") == {(LINK, "miss"): (5, 2, 4, 2), (OWN, "action"): (2, 1, 3, 0)}
    assert {row["netns"] for row in probe.rows("upcalls")} == {str(NETNS), str(OTHER_NETNS)}
    counters = {"upcalls": 7, "failed": 3, "packets": 7, "answered": 2}
    assert {name: value for name, value in probe.counters().items() if value} == counters
    labels = ("datapath", "port", "netns", "error", "kind", "count")
    assert {tuple(row[label] for label in labels) for row in probe.rows("failures")} == {
        (OWN, LINK, str(NETNS), "ECONNREFUSED", "miss", 1),
        (OWN, LINK, str(NETNS), "EAGAIN", "miss", 1),
        (OWN, OWN, str(OTHER_NETNS), "EAGAIN", "action", 1),
    }
    of_cpus = ("datapath", "kind", "cpu", "upcalls", "failed")
    assert {tuple(row[label] for label in of_cpus) for row in probe.rows("cpus")} == {
        (OWN, "miss", 0, 3, 0),
        (OWN, "miss", 1, 2, 2),
        (OWN, "action", 0, 2, 1),
    }
    assert probe.ledger() == {}


def test_each_port_has_its_name_however_many_there_are(load: Load) -> None:
    """A CPU remembers the names of sixteen: some of these take the place of others."""
    host = Upcalls(load(PROBE, AS_FUNCTIONS))
    names = [f"port{number}" for number in range(40)]
    net = host.net(NETNS)
    host.ports = [host.port(10 + number, host.device(name, net, 10 + number)) for number, name in enumerate(names)]
    for times in (1, 2):
        for number in range(len(names)):
            host.upcall(Flow(), number)
        assert host.row("upcalls") == {(name, "miss"): (times,) for name in names}


@pytest.mark.proves("ovs_upcalls", "histograms.latency", "histograms.latency.{datapath,port,netns,kind}")
@pytest.mark.parametrize("programs", [AS_FUNCTIONS, BEFORE])
def test_the_time_is_from_the_upcall_to_the_answer_and_of_twins_the_oldest_is_first(
    load: Load, programs: dict[str, str]
) -> None:
    probe = load(PROBE, programs)
    host = Upcalls(probe)
    drops = host.memory.keep(b"\4\0\0\0")

    def answered(flow: Flow) -> Span:
        if programs is AS_FUNCTIONS:
            return host.answer(flow)
        key = host.key(flow)
        probe.run("given_back", 0, 0, host.copy(flow), key)
        probe.run("answered", 0, drops, host.key(flow))  # the actions of another request
        return at(probe.prepare("answered", 0, drops, key))

    first = host.upcall(Flow())
    wait(3)
    second = host.upcall(Flow())
    other = host.upcall(FLOW6, BY_OWN)
    wait(2)
    times = [elapsed(first, answered(Flow()))]
    host.read()
    (found,) = probe.histograms("latency")
    assert found["count"] == 1 and lies(found["sum"], times[0])
    wait(4)
    times.append(elapsed(second, answered(Flow())))
    latest = elapsed(other, answered(FLOW6))
    host.read()
    by_port = {one["port"]: one for one in probe.histograms("latency")}
    mine, others = by_port[LINK], by_port[OWN]
    assert (mine["datapath"], mine["netns"], mine["kind"]) == (OWN, str(NETNS), "miss")
    assert (others["datapath"], others["netns"], others["kind"]) == (OWN, str(OTHER_NETNS), "miss")
    assert mine["count"] == 2 and lies(mine["sum"], *times)
    assert others["count"] == 1 and lies(others["sum"], latest)
    assert probe.ledger() == {} and probe.counters()["refused"] == 0


QUICK_US = 60_000_000
"""An answer within a minute is quick, however slow the machine is."""


@pytest.mark.proves(
    "ovs_upcalls",
    "tables.flows.{port,netns,source,target,target_port,ethertype,protocol,vlan,upcalls}",
    "events.upcall.{mono_ns,datapath,port,netns,kind,source,target,source_port,target_port,ethertype,vlan,protocol}",
    "events.upcall.{latency_ns,length_bytes,cpu,handler}",
    "knobs.threshold_us",
    "modes.details",
)
def test_an_event_is_the_packet_and_each_flow_has_its_upcalls(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    one = Flow(vlan=42)
    for flow, by, kind, ms in ((one, BY_LINK, MISS, 3), (one, BY_LINK, MISS, 0), (FLOW6, BY_OWN, FOR_USER_SPACE, 4)):
        probe.set("details", events_per_s=100_000, threshold_us=2000 if ms else QUICK_US)
        with on_cpu(by):
            asked = host.upcall(flow, by, kind)
        wait(ms)
        answered = host.answer(flow)
        took = elapsed(asked, answered)
        host.read()
        if not ms:
            assert not probe.events()
            continue
        (event,) = probe.events()
        place = (LINK, str(NETNS), "miss") if by == BY_LINK else (OWN, str(OTHER_NETNS), "action")
        assert (event["datapath"], event["port"], event["netns"], event["kind"]) == (OWN, *place)
        assert lies(event["mono_ns"], answered) and lies(event["latency_ns"], took)
        assert (event["source"], event["source_port"]) == (flow.source, flow.source_port)
        assert (event["target"], event["target_port"]) == (flow.target, flow.target_port)
        kinds = ("IPv4", "UDP", 42) if flow is one else ("IPv6", "TCP", 0)
        assert (event["ethertype"], event["protocol"], event["vlan"]) == kinds
        assert (event["length_bytes"], event["cpu"]) == (len(flow.packet()), by)
        assert "python" in event["handler"] or "pytest" in event["handler"]
    labels = ("port", "netns", "source", "target", "target_port", "ethertype", "protocol", "vlan", "upcalls")
    assert {tuple(row[label] for label in labels) for row in probe.rows("flows")} == {
        (LINK, str(NETNS), one.source, one.target, 2222, "IPv4", "UDP", 42, 2),
        (OWN, str(OTHER_NETNS), FLOW6.source, FLOW6.target, 4444, "IPv6", "TCP", 0, 1),
    }
    assert probe.ledger() == {"seen": 2, "submitted": 2}


@pytest.mark.proves("ovs_upcalls", "counters.{refused,unasked}", "ledger.join_missed")
def test_what_user_space_sends_by_itself_or_badly_is_told_apart(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    host.answer(Flow())
    host.answer(Flow(), result=-errno.EINVAL)
    probe.set(address="192.0.2.0/24")  # its upcall may not have passed
    host.answer(Flow())
    probe.set(device=LINK)
    host.answer(Flow())
    probe.set()
    host.resumed(time.monotonic_ns())  # its upcall may have come in mode counters
    host.answer(Flow())
    host.resumed(time.monotonic_ns() - 1100 * MS)
    host.answer(Flow())
    host.read()
    found = probe.counters()
    assert (found["unasked"], found["refused"], found["answered"]) == (2, 1, 0)
    assert probe.ledger() == {"join_missed": 1}

    probe = load(PROBE, BEFORE)
    host = Upcalls(probe)
    host.resumed(7)
    for _ in range(3):  # two of them end before their actions are read
        host.answer(Flow())
    host.resumed(8)
    host.answer(Flow())
    host.read()
    assert probe.counters()["refused"] == 2


@pytest.mark.proves(
    "ovs_upcalls",
    "counters.{unanswered,late,dropped}",
    "tables.upcalls.{unanswered,late,dropped}",
    "knobs.unanswered_after_ms",
)
def test_what_is_not_answered_in_time_is_unanswered_late_or_dropped_by_a_flow(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    probe.set(unanswered_after_ms=40)
    late, never, dropped, sampled = (Flow(source_port=number) for number in (1, 2, 3, 4))
    began = host.upcall(late)
    host.upcall(never)
    asked = host.upcall(dropped)
    host.upcall(sampled, kind=FOR_USER_SPACE)  # meant for user space: it need not come back
    flow = host.memory.keep(bytes(FLOW["key"]) + flow_key(Flow()))
    whole, actions = host.key(dropped), (host.memory.keep(b"\4\0\0\0"), host.memory.keep(b"\5\0\0\0"))
    for key, attribute in ((whole, actions[0]), (host.key(never), actions[1])):
        probe.run("put", flow + FLOW["id"], 0, key)
        put = at(probe.prepare("answered", 0, attribute, flow + FLOW["key"]))
        if key == whole:
            took = elapsed(asked, put)
    host.read()
    while time.monotonic_ns() < began[0] + 40 * MS:
        probe.run("switched")
        host.read()
        sure = time.monotonic_ns() < began[0] + 40 * MS
        assert not sure or probe.counters()["unanswered"] == 0
    host.until("unanswered", 2)
    host.until("dropped", 1)
    since = host.answer(late)
    host.answer(late)  # no more
    counters = host.row(*ENDS)
    assert counters == {(LINK, "miss"): (0, 1, 2, 1), (LINK, "action"): (0, 0, 0, 0)}
    found = probe.counters()
    assert (found["answered"], found["dropped"], found["unanswered"], found["late"], found["unasked"]) == (
        0,
        1,
        2,
        1,
        1,
    )
    (histogram,) = probe.histograms("latency")
    assert histogram["count"] == 2 and lies(histogram["sum"], took, elapsed(began, since))
    assert probe.ledger() == {}


@pytest.mark.proves(
    "ovs_upcalls",
    "knobs.{device,address,port,protocol,netns,vlan,ethertype,mac}",
    "modes.counters",
    "ledger.{unlisted,parse_failed}",
)
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    eth0 = host.device("eth0", host.net(NETNS), 2)
    host.ports[BY_LINK] = host.port(3, eth0)
    passed_at_all = 0
    for mode in ("summary", "counters"):
        for knobs, wanted in FILTERS:
            probe.set(mode, **knobs)
            for number, flow in enumerate(FLOWS):
                before = probe.running._maps["nc_counters"].sum_of(0)
                host.ask(flow)
                probe.run("ended", 0, 0, 0, 0, 0, 0, -errno.EAGAIN & 0xFFFFFFFF)
                passed = probe.running._maps["nc_counters"].sum_of(0) - before
                assert passed == (number in wanted), (mode, knobs, flow)
                passed_at_all += passed * (mode == "counters")
    host.read()
    assert probe.ledger() == {"unlisted": passed_at_all}


def test_filters_by_frame_let_pass_what_they_name(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    for knobs, flows in BY_FRAME:
        probe.set(**knobs)
        for flow in FRAMES:
            before = probe.running._maps["nc_counters"].sum_of(0)
            host.ask(flow)
            host.hand_over(host.copy(flow))
            assert probe.running._maps["nc_counters"].sum_of(0) - before == (flow in flows), (knobs, flow)
    probe.set()
    host.upcall(Flow(), protocol=0)
    host.read()
    assert probe.ledger() == {"parse_failed": 1}


@pytest.mark.proves("ovs_upcalls", "knobs.events_per_s", "ledger.{map_full,suppressed,breaker}")
def test_what_has_no_room_or_no_budget_is_counted(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS, upcalls=1, cpus=1, latency=1, failures=1)
    host = Upcalls(probe)
    for by in (BY_LINK, BY_OWN):
        for kind in (MISS, FOR_USER_SPACE):
            host.upcall(Flow(), by, kind)
            host.ask(Flow(), by, kind)
            host.hand_over(error=-errno.EAGAIN)
    host.read()
    (row,) = probe.rows("upcalls")
    assert row["upcalls"] == 2 and probe.row("failures")["count"] == 1
    # Of 4 only one has a row: missing at two upcalls and both of their ends. One kind of 2 has no row of the CPU.
    assert probe.ledger() == {"map_full": 3 * (2 + 2) + 2 * (2 + 1) + 3}
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    probe.running.spec["knobs"]["threshold_us"] = 0  # every answer
    calls = host.of_one_packet(Flow())
    now = spend_time(probe, calls, spend_events(probe, calls))
    row = probe.row("upcalls")
    assert row["answered"] == FEW + MANY == probe.counters()["answered"] == now["seen"]
    assert row["upcalls"] + now["unlisted"] == FEW + MANY == probe.counters()["upcalls"]
