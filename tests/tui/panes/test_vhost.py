"""The vhost pane: the worst queue of a thousand is the first row, with the stage to blame; unknown stays unknown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from netconsole.findings.match import RowVerdict
from netconsole.probes import catalogue as probes
from netconsole.profile.profile import Budget
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.telemetry.session import Connection
from netconsole.telemetry.tables import row_key
from netconsole.tui.panes import advice, catalogue, row_page
from netconsole.tui.panes.common.states import RowStatus
from netconsole.tui.panes.vhost import pane as vhost
from netconsole.tui.panes.vhost import queues
from netconsole.tui.scene.scene import Scene, Subject
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.vhost_scenes import NS, Host, labels

RECORDINGS = Path(__file__).parents[3] / "recordings"
NAMES = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path")
MANIFESTS = {name: probes.shipped(name) for name in NAMES}


def scene_of(session: PlayedSession, names: tuple[str, ...] = NAMES) -> Scene:
    manifests = {name: probes.shipped(name) for name in names}
    return Scene(session.state, manifests, PROFILE, Connection("live"), verdicts=session.findings.verdicts)


@pytest.fixture
def host() -> tuple[Host, PlayedSession]:
    """Three VMs of two queues after a first interval in which nothing moved."""
    made, session = Host(3, 2), PlayedSession(manifests=MANIFESTS)
    session.play(made.interval(set()))
    return made, session


def texts(scene: Scene) -> list[dict[str, str]]:
    return [{name: cell.text for name, cell in row.cells.items()} for row in vhost.block().rows(scene)]


def test_a_busy_queue_has_rates_depth_and_the_stage_that_dominates(host: tuple[Host, PlayedSession]) -> None:
    made, session = host
    session.play(made.interval({(1, 1)}))
    first, second, *_ = texts(scene_of(session))
    assert (first["vm"], first["device"], first["queue"], first["state"]) == ("vm-001", "vnet1", "1", "ok")
    assert (first["to_guest"], first["from_guest"], first["dropped"]) == ("1.00k", "1.00k", "0")
    assert first["depth"] == "200/256"
    assert first["suppressed"] == "50"
    share = 100 * NS["S1-S2"] / sum(NS.values())
    assert first["stage"] == f"S1-S2 {share:.0f} %"
    assert second["state"] == "idle"
    assert second["irq_p99"] == second["wake"] == "–"


@pytest.mark.parametrize(
    ("unsignalled", "unanswered", "words"),
    [
        (30, False, "stuck: no poll"),
        (0, False, "stuck: guest"),
        # By an event index a dead guest is interrupted once, and what it gets later suppresses the interrupt.
        (254, True, "stuck: guest"),
    ],
)
def test_a_stuck_queue_is_named_and_first(
    host: tuple[Host, PlayedSession], unsignalled: int, unanswered: bool, words: str
) -> None:
    made, session = host
    session.play(made.interval({(0, 0), (1, 0)}, stuck={(2, 1): unsignalled}, unanswered=unanswered))
    first = texts(scene_of(session))[0]
    assert (first["vm"], first["queue"]) == ("vm-002", "1")
    assert first["state"] == f"!! {words}"
    assert first["dropped"] == "500"
    assert first["depth"] == "0/256"


def test_a_queue_that_vhost_has_no_more_is_named(host: tuple[Host, PlayedSession]) -> None:
    made, session = host
    session.play(made.interval({(0, 0)}, stuck={(2, 1): 0}, detached=True))
    assert texts(scene_of(session))[0]["state"] == "!! stuck: detached"


@pytest.mark.parametrize(("gauge", "detached"), [("paused", True), ("paused", False), ("stopped", False)])
def test_a_queue_of_a_machine_that_does_not_run_says_so(
    host: tuple[Host, PlayedSession], gauge: str, detached: bool
) -> None:
    made, session = host
    made.scenario.status("vm_states")
    rows = [
        {"labels": {"vm": f"vm-{vm:03}", "process": f"qemu/{vm}"}, "counts": {}, "gauges": {gauge: int(vm == 2)}}
        for vm in range(3)
    ]
    made.scenario.table("vm_states", "machines", rows)
    session.play(made.scenario)  # in the same interval
    session.play(made.interval({(0, 0)}, stuck={(1, 0): 0, (2, 1): 0}, detached=detached))
    states = {row["vm"]: row["state"] for row in texts(scene_of(session))[:2]}
    assert states == {"vm-002": f"!! stuck: VM {gauge}", "vm-001": f"!! stuck: {'detached' if detached else 'guest'}"}


def test_the_stuck_queue_of_a_real_hypervisor_is_named() -> None:
    manifests = {name: probes.shipped(name) for name in NAMES}
    player = Player(Recording(RECORDINGS / "vhost.ncrec"), manifests, Budget())
    said = set()
    while player.step():
        verdicts = player.place.findings.verdicts
        scene = Scene(player.place.state, manifests, PROFILE, Connection("live"), verdicts=verdicts)
        said |= {row.cells["state"].text for row in vhost.block().rows(scene)}
    assert said & {"!! stuck: guest", "!! stuck: no poll"}


def test_drops_of_a_queue_that_moves_are_a_full_ring(host: tuple[Host, PlayedSession]) -> None:
    made, session = host
    session.play(made.interval({(2, 1)}, stuck={(2, 1): 0}))
    assert texts(scene_of(session))[0]["state"] == "!! ring full"


def test_one_queue_is_no_queues() -> None:
    made, session = Host(1, 1), PlayedSession(manifests=MANIFESTS)
    session.play(made.interval(set()))
    assert vhost.block().title(scene_of(session)).startswith("vhost queues, worst first · 1 queue · 0 active")


def test_the_worst_of_1600_queues_is_found(host: tuple[Host, PlayedSession]) -> None:
    made, session = Host(200, 8), PlayedSession(manifests=MANIFESTS)
    session.play(made.interval(set()))
    busy = {(vm, vm % 8) for vm in range(0, 200, 4)}
    session.play(made.interval(busy))
    for _ in range(2):
        session.play(made.interval(busy, slow={(100, 4): 12_000_000}))
    scene = scene_of(session)
    rows = vhost.block().rows(scene)
    assert len(rows) == 1600
    assert (rows[0].cells["vm"].text, rows[0].cells["state"].text) == ("vm-100", "! late interrupts")
    tied = [row.cells["device"].text for row in rows[1:50]]
    assert tied == sorted(tied), "equal ones never change places"
    worst = max(rows, key=lambda row: float(row.cells["irq_p99"].sort or 0))
    assert (worst.cells["vm"].text, worst.cells["queue"].text) == ("vm-100", "4")
    assert vhost.block().title(scene).startswith("vhost queues, worst first · 1\u202f600 queues · 50 active")


@pytest.mark.parametrize(
    ("ring_full", "starved", "waited_ms", "state"),
    [
        (1, 0, 0, "ok"),
        (2, 0, 0, "! ring full"),
        (10, 0, 0, "!! ring full"),
        (0, 99, 0, "ok"),
        (0, 100, 0, "! no buffers"),
        (0, 0, 499, "ok"),
        (0, 0, 500, "! late worker"),
        (0, 100, 500, "! late worker"),
        (10, 100, 500, "!! ring full"),
    ],
)
def test_a_queue_is_as_bad_as_its_worst_finding(ring_full: int, starved: int, waited_ms: int, state: str) -> None:
    """In one interval: a pane has no limits of its own (docs/reference/probes.md#findings)."""
    made, session = Host(1, 1), PlayedSession(manifests=MANIFESTS)
    session.play(made.interval(set()))
    session.play(made.interval({(0, 0)}, ring_full=ring_full, starved=starved, waited_ms=waited_ms))
    (row,) = texts(scene_of(session))
    assert row["state"] == state
    found = [(one.level, one.cause) for one in session.findings.update(session.state)]
    assert (state == "ok") == (not found), found


def test_of_more_full_rings_than_become_incidents_each_says_so() -> None:
    made, session = Host(200, 1), PlayedSession(manifests=MANIFESTS)
    session.play(made.interval(set()))
    session.play(made.interval(set(made.places), ring_full=50))
    assert len(session.findings.update(session.state)) < 200
    assert {row["state"] for row in texts(scene_of(session))} == {"!! ring full"}


@pytest.mark.parametrize("active", [8, 80, 200])
def test_an_interval_costs_what_moves_in_it(active: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1600 queues only those are judged and written anew that move now, or did in the interval before."""
    made, session, pane = Host(200, 8), PlayedSession(manifests=MANIFESTS), vhost.block()
    session.play(made.interval(set()))
    pane.rows(scene_of(session))
    judged: list[queues.Queue] = []
    status_of = queues.status_of

    def judge(queue: queues.Queue, found: Mapping[queues.QueuePlace, RowVerdict]) -> RowStatus:
        judged.append(queue)
        return status_of(queue, found)

    monkeypatch.setattr(queues, "status_of", judge)
    for first in (0, 400):
        judged.clear()
        session.play(made.interval(set(made.places[first : first + active])))
        rows = pane.rows(scene_of(session))
        assert len(judged) == active * (1 if first == 0 else 2)
        assert [row.cells["state"].text for row in rows[:active]] == ["ok"] * active


def test_it_is_said_why_there_are_no_times_of_interrupts(host: tuple[Host, PlayedSession]) -> None:
    made, session = host
    session.play(made.interval({(0, 0)}))
    assert "irq" not in vhost.block().title(scene_of(session))
    session.state.probes["irq_path"].status = "unsupported"
    assert vhost.block().title(scene_of(session)).endswith(" · irq: irq_path unsupported")
    del session.state.probes["irq_path"]
    assert vhost.block().title(scene_of(session)).endswith(" · irq: profile vhost has it")


def test_a_kept_table_tells_the_same_as_a_new_one() -> None:
    made, session = Host(20, 4), PlayedSession(manifests=MANIFESTS)
    kept = vhost.block()
    busy = [{(vm, 0) for vm in range(tick, tick + 5)} for tick in range(6)]
    for tick, moving in enumerate([set(), *busy, set()]):
        session.play(made.interval(moving, stuck={(tick, 2): 5} if tick % 2 else {}))
        scene = scene_of(session)
        new = {row.key: row.cells["state"].text for row in vhost.block().rows(scene)}
        assert {row.key: row.cells["state"].text for row in kept.rows(scene)} == new
        assert kept.title(scene) == vhost.block().title(scene)


def test_without_the_interrupt_path_the_rest_is_shown(host: tuple[Host, PlayedSession]) -> None:
    made, session = host
    session.play(made.interval({(0, 0)}))
    del session.state.probes["irq_path"]
    without = scene_of(session)
    first = texts(without)[0]
    assert first["irq_p99"] == first["stage"] == "–"
    assert first["to_guest"] == "1.00k"
    page = page_of(without, 0, 0)
    heading = page.index("  Stages from the tap to the guest's interrupt, since attached")
    assert page[heading + 1] == "  irq_path: not in profile summary"


def page_of(scene: Scene, vm: int, queue: int, width: int = 150) -> list[str]:
    subject = Subject("vhost_queues", "table", "queues", row_key(labels(vm, queue, direction="rx")))
    return ["".join(text for text, _ in line) for line in row_page.lines(scene, subject, width)]


def test_the_page_of_a_queue_has_its_stages_side_by_side(host: tuple[Host, PlayedSession]) -> None:
    made, session = host
    session.play(made.interval({(0, 0)}))
    page = page_of(scene_of(session), 0, 0)
    (heads,) = [line for line in page if "S1-S2" in line and "S4-S5" in line and "total" in line]
    assert heads.index("S1-S2") < heads.index("S2-S3") < heads.index("total")
    assert any("of time" in line and "100 %" in line for line in page)
    assert any("Slow interrupts" in line for line in page)
    (worker,) = [number for number, line in enumerate(page) if line.startswith("  worker ")]
    assert "vhost-0 30 % of CPU 4, node 1" in page[worker]
    assert page[worker + 1].strip() == "runs 20 us after a wake-up, waits 10 us for a CPU (p99)"
    assert any("30 of 1.00k packets in it (p99), at least 12 flows" in line for line in page)
    narrow = page_of(scene_of(session), 0, 0, 80)
    assert all(len(line) <= 80 for line in narrow if "S4-S5" in line or "p99" in line or "██" in line)


def test_the_page_of_a_queue_has_its_interrupt_lines(host: tuple[Host, PlayedSession]) -> None:
    """Signals of vhost, and what the guest's APIC accepted: of a lost interrupt the second is missing."""
    made, session = host
    session.play(made.interval({(0, 0)}))
    made.scenario.lines = []
    made.scenario.status("kvm_irqs")
    at = {"gsi": 25, "vm": "vm-000"}
    places = [labels(0, 0, direction=way, gsi=gsi) for way, gsi in (("rx", 25), ("tx", 26))]
    wires = [
        {"labels": place, "counts": {"signals": (40, 40)}} for place in (*places, labels(1, 0, direction="rx", gsi=9))
    ]
    lines = [{"labels": at, "counts": {"accepted": (30, 30)}, "gauges": {"apic": 2}}]
    made.scenario.table("kvm_irqs", "wires", wires)
    made.scenario.table("kvm_irqs", "lines", lines)
    session.play(made.scenario.end())
    page = [line.strip() for line in page_of(scene_of(session), 0, 0)]
    assert [line for line in page if line.startswith("irq line")] == [
        "irq line      GSI 25 to guest: 40 signals/s, 30 interrupts/s accepted by APIC 2",
        "irq line      GSI 26 from it: 40 signals/s, – accepted",
    ]


def test_samples_of_a_queue_are_of_its_ring_while_that_is_full(host: tuple[Host, PlayedSession]) -> None:
    """Else of vhost's runs, of which a stuck queue has none."""
    made, session = host
    session.play(made.interval({(0, 0), (1, 0)}, stuck={(2, 1): 0}))
    scene = scene_of(session)
    rows = {
        at: Subject("vhost_queues", "table", "queues", row_key(labels(*at, direction="rx"))) for at in ((0, 0), (2, 1))
    }
    ring = Subject("tun_queues", "table", "queues", row_key(labels(2, 1)))
    assert advice.investigable(scene, rows[2, 1]) == advice.investigable(scene, ring) == ring
    assert advice.investigable(scene, rows[0, 0]) == rows[0, 0]


def test_the_page_of_a_stuck_queue_has_the_indices_that_prove_it(host: tuple[Host, PlayedSession]) -> None:
    """As they are, and over time where runs were sampled; and whose packets fill the ring of its tap."""
    made, session = host
    session.play(made.interval({(0, 0)}, stuck={(2, 1): 254}, unanswered=True))
    ring = {"avail_idx": 65_530, "taken_idx": 65_530, "used_idx": 65_530, "has_event": 1, "used_event": 65_276}
    made.scenario.lines = []
    rows = [
        {"labels": labels(2, 1, direction=way), "counts": {}, "gauges": {**ring, "avail_flags": 0, "size_buffers": 256}}
        for way in ("rx", "tx")
    ]
    made.scenario.table("vhost_queues", "queues", rows)
    for used in (65_276, 65_530):
        fields = {**labels(2, 1, direction="rx"), **ring, "used_idx": used, "packets": 3, "signals": 1}
        made.scenario.frame("event", "vhost_queues", name="run", fields=fields)
    made.scenario.frame("event", "vhost_queues", name="run", fields={**labels(0, 0, direction="rx"), **ring})
    for source in ("192.0.2.1", "192.0.2.1", "192.0.2.9", "192.0.2.1"):
        ends = {"source": source, "source_port": 7, "target": "192.0.2.2", "target_port": 53}
        made.scenario.frame("event", "tun_queues", name="packet", fields={**labels(2, 1), **ends})
    session.play(made.scenario.end())
    page = page_of(scene_of(session), 2, 1)
    at = next(number for number, line in enumerate(page) if line.startswith("  ring to guest"))
    offered = "guest offered up to 65530, vhost took up to 65530, gave back up to 65530: 0 of 256 are left"
    assert page[at].endswith(offered)
    assert page[at + 1].strip() == "it wanted an interrupt behind 65276, 254 ago: none until it moves that"
    start = page.index("  Indices of its rings over time (samples of runs)")
    newest, oldest = page[start + 1 : start + 3]
    assert newest.endswith("avail 65530, taken 65530, used 65530, used_event 65276: 3 packets, 1 interrupts")
    assert "used 65276" in oldest and page[start + 3] == ""
    assert any("75 % of 4 samples: 192.0.2.1:7 → 192.0.2.2:53" in line for line in page)


def test_without_its_last_point_the_stages_are_shown_and_the_rest_is_unknown(
    host: tuple[Host, PlayedSession],
) -> None:
    """As irq_path has it on arm64: three stages, no total."""
    made, session = host
    session.play(made.interval({(0, 0)}))
    group = session.state.probes["irq_path"].histograms["stages"].rows
    for key, one in list(group.items()):
        if one.labels["stage"] in ("S4-S5", "total"):
            del group[key]
    first = texts(scene_of(session))[0]
    assert first["irq_p50"] == first["irq_p99"] == first["stage"] == "–"
    page = page_of(scene_of(session), 0, 0)
    heading = page.index("  Stages from the tap to the guest's interrupt, since attached")
    assert page[heading + 1].split() == ["S1-S2", "S2-S3", "S3-S4"]
    assert page[heading + 5].split() == ["–", "of", "time"] * 3
    said = "  Slow ones are not known: this kernel does not tell the last point of this way"
    assert said in page[heading:] and "S4-S5" not in page[heading + 1]
    assert not any("none over" in line for line in page[: page.index(said)])


def test_the_page_of_a_queue_has_the_way_from_the_guest_too(host: tuple[Host, PlayedSession]) -> None:
    made, session = host
    session.play(made.interval({(0, 0)}))
    slow = {"k1_k2_ns": 1_900_000, "k2_k3_ns": 60_000, "k3_k4_ns": 40_000, "total_ns": 2_000_000, "kicks": 3}
    made.scenario.lines = []
    made.scenario.status("tx_kick_path", mode="details")
    made.scenario.frame("event", "tx_kick_path", name="run", fields={**labels(0, 0), **slow})
    session.play(made.scenario.end())
    page = page_of(scene_of(session), 0, 0)
    start = page.index("  Stages from the guest's kick to the host's stack, since attached")
    assert page[start + 1].split() == ["K1-K2", "K2-K3", "K3-K4", "total"]
    assert page[start + 2].split() == ["kick", "→", "worker", "worker", "→", "tap", "tap", "→", "stack"]
    assert "75 % of time" in page[start + 5]
    assert "  2 ms: K1-K2 1.90 ms, K2-K3 60 us, K3-K4 40 us; 3 kicks" in page


def test_where_nothing_can_run_the_pane_says_so_and_what_remains() -> None:
    session = PlayedSession(manifests=MANIFESTS)
    why = "this kernel has no kprobes (CONFIG_KPROBE_EVENTS)"
    host = Host(0, 0)
    for name in NAMES:
        host.scenario.status(name, "unsupported", why=f"{why}; netconsole cannot measure {name}'s own things")
    session.play(host.scenario)
    scene = scene_of(session, (*NAMES, "virtio_guest"))
    said = catalogue.missing(scene, catalogue.panes(scene.manifests, NAMES)["vhost"])
    assert said == (
        f"vhost_queues, tun_queues, irq_path, tx_kick_path are unsupported: {why}. "
        f"Not tried: virtio_guest. {catalogue.DOCTOR}"
    )
