"""How captures of one ping are joined by echo, what is left out, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from netconsole.base.errors import BadInput
from netconsole.ping.analysis.echoes import WRAP, EchoKey
from netconsole.ping.analysis.merge import (
    INWARDS,
    MUCH,
    CaptureFile,
    JoinedCaptures,
    RoleTimes,
    join,
    roles_missing,
    total_of,
)
from netconsole.ping.capture import IrqTimes, KickTimes, Role
from tests.support.ping import capture_of, echo

OUTER: Role = "sender-vm"
INNER: Role = "sender-host"


def echoes(seqs: Iterable[int], total: float = 100.0, **more: Any) -> list[dict[str, Any]]:
    return [echo(seq, 1, total - 2, 1, **more) for seq in seqs]


def two(outer: list[dict[str, Any]], inner: list[dict[str, Any]], **of_inner: Any) -> JoinedCaptures:
    """Of two vantage points, the second within the first."""
    return join([capture_of(OUTER, outer), capture_of(INNER, inner, **of_inner)])


def seqs(joined: JoinedCaptures) -> list[int]:
    return [seq for _, seq in joined.paired]


def said(joined: JoinedCaptures) -> list[tuple[str, bool, str]]:
    return [(one.check, one.ok, one.detail) for one in joined.checks]


def test_echoes_that_all_have_are_paired_in_order() -> None:
    joined = two(echoes([4, 2, 9, 1]), echoes([9, 4, 3, 2], 80))
    assert joined.paired == [(7, 2), (7, 4), (7, 9)]
    assert joined.by_packet == {OUTER, INNER} and said(joined) == []
    assert list(joined.roles) == [OUTER, INNER] and not joined.one_host
    alone = join([capture_of(OUTER, [*echoes([2]), *echoes([3], id=5), *echoes([1], id=9)])])
    assert alone.paired == [(5, 3), (7, 2), (9, 1)] and alone.by_packet == {OUTER}
    nothing = join([capture_of(OUTER, [])])
    assert nothing.paired == [] and nothing.by_packet == set()


def test_the_order_of_roles_is_from_the_outside_in_whatever_that_of_the_files() -> None:
    files = [capture_of(role, echoes([1])) for role in ("receiver-vm", "receiver-host", "sender-host", "sender-vm")]
    assert [*join(files).roles] == [role for role in INWARDS if role != "host"]


def test_captures_without_a_common_echo_are_joined_by_their_means() -> None:
    joined = two(echoes([1, 2]), echoes([3], 80))
    assert joined.paired == [] and joined.by_packet == set()
    detail = "no echo is in sender-host and in sender-vm, so the captures are of different runs"
    assert said(joined) == [("same echoes", False, f"{detail}: only their means are joined")]
    third = join([capture_of(role, echoes(of, us)) for role, of, us in (
        (OUTER, [1, 2], 100), (INNER, [3], 90), ("receiver-host", [2], 80))])  # fmt: skip
    assert third.paired == [(7, 2)] and third.by_packet == {OUTER, "receiver-host"}


@pytest.mark.parametrize(("inner_us", "left"), [(100.21, [1, 2, 3]), (100.22, [2, 3]), (99.0, [1, 2, 3])])
def test_an_echo_that_takes_longer_inside_than_around_it_is_left_out(inner_us: float, left: list[int]) -> None:
    """Beyond what rounding can do: 0.21 us."""
    joined = two(echoes([1, 2, 3]), [*echoes([1], inner_us), *echoes([2, 3], 80)])
    assert seqs(joined) == left
    detail = "left out: 1 echo (id 7 seq 1): sender-host takes longer than sender-vm around it, because a clock was set"
    assert said(joined) == ([] if 1 in left else [("clock", False, detail)])


def test_an_echo_that_took_no_time_is_held_against_what_is_around_it() -> None:
    def paired(outer_us: float, inner_us: float) -> list[int]:
        rows = [{"id": 7, "seq": 1, "total_us": total} for total in (outer_us, inner_us)]
        return seqs(two([rows[0], *echoes([2, 3])], [rows[1], *echoes([2, 3], 80)]))

    assert paired(0.0, 0.5) == [2, 3] and paired(0.0, 0.0) == paired(0.5, 0.0) == [1, 2, 3]


def test_what_is_odd_in_one_capture_is_said() -> None:
    assert said(two(echoes([1]), [*echoes([1], 80), *echoes([1], 70)])) == [
        ("duplicates", False, "sender-host: 1 echo: two records each, and the first counts (id 7 seq 1)")
    ]


def test_how_far_a_capture_can_be_off_is_allowed_for() -> None:
    """The largest error of its files: 0.21 us of rounding, 2 us of the inner and 1 us of the outer one."""
    for inner_us, left in ((103.2, [1, 2]), (103.22, [2])):
        files = [
            capture_of(OUTER, echoes([1, 2]), error_us=1.0),
            capture_of(INNER, [*echoes([1], inner_us), *echoes([2], 80)], error_us=0.5),
            capture_of(INNER, [], error_us=2.0),
        ]
        joined = join(files)
        assert (joined.roles[INNER].error_us, seqs(joined)) == (2.0, left)


@pytest.mark.parametrize(("impossible", "paired"), [(2, [2, 3]), (3, [])])
def test_if_most_echoes_cannot_be_the_captures_are_of_different_runs(impossible: int, paired: list[int]) -> None:
    """Half of four may be left out."""
    joined = two(echoes(range(4)), [*echoes(range(impossible), 200), *echoes(range(impossible, 4), 80)])
    assert seqs(joined) == paired and joined.by_packet == ({OUTER, INNER} if paired else set())
    [(check, ok, detail)] = said(joined)
    assert (check, ok) == ("clock" if paired else "same echoes", False)
    assert detail.startswith("left out: 2 echoes" if paired else "3 of 4 echoes: sender-host takes longer")


def partial(seqs: Iterable[int], total: float = 80.0) -> list[dict[str, Any]]:
    """Echoes of which only the whole is known."""
    return [{"id": 7, "seq": seq, "total_us": total} for seq in seqs]


@pytest.mark.parametrize(("lacking", "paired"), [(0, 10), (1, 9), (2, 10)])
def test_one_echo_of_ten_without_its_middle_is_left_out(lacking: int, paired: int) -> None:
    assert MUCH == 0.9
    joined = two(echoes(range(10)), [*partial(range(lacking)), *echoes(range(lacking, 10), 80)])
    assert len(joined.paired) == paired
    detail = "1 of 10 echoes left out: sender-host knows only their total time"
    assert said(joined) == ([("echoes are whole", True, detail)] if lacking == 1 else [])


def test_what_is_left_out_is_told_from_the_outside_in() -> None:
    """Each of four captures lacks the middle of another echo of a hundred."""
    roles = [role for role in INWARDS if role != "host"]
    files = []
    for place, role in enumerate(roles):
        whole = [seq for seq in range(100) if seq != place]
        files.append(capture_of(role, [*partial([place], 80 - place), *echoes(whole, 80 - place)]))
    joined = join(files)
    assert seqs(joined) == [*range(4, 100)]
    assert [detail.partition(": ")[2].partition(" knows")[0] for _, _, detail in said(joined)] == roles


IRQ: dict[str, Any] = {"s1_s2": 1.0, "s2_s3": 2.0, "s3_s4": 3.0, "s4_s5": 4.0}


@pytest.mark.parametrize("part", ["vhost_irq", "vhost_kick"])
@pytest.mark.parametrize(("known", "paired"), [(10, 10), (9, 9), (8, 10)])
def test_stages_of_nine_echoes_in_ten_join_them(part: str, known: int, paired: int) -> None:
    rows = [{"id": 7, "seq": seq, "total": 5.0} for seq in range(known)]
    rows += [{"id": 7, "seq": 9}] if known < 10 else []  # nothing of it is known
    joined = two(echoes(range(10)), echoes(range(10), 80), **{part: {"packets": rows}})
    assert len(joined.paired) == paired
    assert joined.joined_parts == ({(INNER, part)} if known >= 9 else set())
    detail = f"sender-host, {part}: measured for 8 of 10 echoes, so its mean stands for the others"
    assert said(joined) == ([("stages of every echo", False, detail)] if known == 8 else [])


def test_stages_are_held_against_all_that_were_paired_not_against_what_others_left() -> None:
    """The first leaves 18 of 20. The second has 17 of these: less than nine in ten of all."""
    irq = [{"id": 7, "seq": seq, **IRQ} for seq in range(18)]
    kick = [{"id": 7, "seq": seq, "total": 1.0} for seq in range(1, 20)]
    joined = two(echoes(range(20)), echoes(range(20), 80), vhost_irq={"packets": irq}, vhost_kick={"packets": kick})
    assert seqs(joined) == [*range(18)] and joined.joined_parts == {(INNER, "vhost_irq")}
    means = join([capture_of(INNER, [], vhost_irq={"packets": irq})])
    assert (said(means), means.joined_parts) == ([], set())
    assert means.roles[INNER].error_us == RoleTimes(INNER, []).error_us == 0.0


def test_the_whole_of_stages_is_told_or_their_sum() -> None:
    assert total_of(IrqTimes(1, **IRQ)) == 10.0 and total_of(IrqTimes(1, **IRQ, total=11.0)) == 11.0
    assert total_of(KickTimes(1, k1_k2=1.0, k2_k3=2.0, k3_k4=4.0)) == 7.0
    assert total_of(IrqTimes(1, s1_s2=1.0, s2_s3=2.0, s3_s4=3.0)) is None
    assert total_of(KickTimes(1, k2_k3=2.0, k3_k4=3.0)) is None and total_of(KickTimes(1, total=0.0)) == 0.0


def test_stages_that_stand_twice_are_said_and_the_first_counts() -> None:
    rows = [{"id": 7, "seq": 1, "total": total} for total in (5.0, 6.0)]
    for part in ("vhost_irq", "vhost_kick"):
        joined = two(echoes([1]), echoes([1], 80), **{part: {"packets": rows}})
        role = joined.roles[INNER]
        [row] = (role.irq if part == "vhost_irq" else role.kick).values()
        assert row.total == 5.0
        detail = f"sender-host, {part}: 1 record there twice (id 7 seq 1): the first counts"
        assert said(joined) == [("duplicates", False, detail)]


def test_captures_of_one_role_complete_each_other() -> None:
    mean = {"mean": 3.0, "n": 4}
    irq = capture_of(INNER, [], vhost_irq={"summary": {"total": mean}}, ledger={"map_full": 2})
    kick = capture_of(INNER, [], vhost_kick={"summary": {"total": mean}}, notes=["half"], source="perf")
    both = capture_of(INNER, echoes([1], 80), summary={"total_us": mean})
    joined = join([irq, capture_of(OUTER, echoes([1])), kick, both])
    role = joined.roles[INNER]
    assert role.main is both.capture and join([kick, capture_of(INNER, echoes([1]))]).roles[INNER].main.packets
    assert joined.roles[OUTER].main.role == OUTER
    assert [len(role.echoes), role.summary and role.summary.total_us and role.summary.total_us.n] == [1, 4]
    assert role.irq_summary is not None and role.kick_summary is not None
    assert said(joined) == [
        ("nothing missed", False, "sender-host: the capture missed records: map_full 2"),
        ("imported", False, "sender-host: half"),
    ]
    noted = join([capture_of(INNER, [], notes=["half"])])
    assert said(noted) == [("noted", False, "sender-host: half")]
    assert noted.roles[INNER].main is noted.roles[INNER].files[0].capture


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ({"packets": echoes([1])}, "its echoes"),
        ({"summary": {"total_us": {"mean": 1.0}}, "packets": []}, "its echoes"),
        ({"vhost_irq": {"summary": {}}, "packets": []}, "its vhost_irq"),
        ({"vhost_kick": {"summary": {}}, "packets": []}, "its vhost_kick"),
    ],
)
def test_a_part_that_two_files_have_is_refused(part: dict[str, Any], what: str) -> None:
    rows = part.pop("packets")
    first, second = capture_of(INNER, rows, **part), capture_of(INNER, rows, **part)
    files = [capture_of(INNER, []), CaptureFile("/somewhere/first.json", first.capture), second]
    with pytest.raises(BadInput, match=rf"sender-host has {what} from first\.json already"):
        join(files)


def test_packets_of_others_are_no_loss_and_five_entries_are_named() -> None:
    ledger = {"other_pings": 1, "repeated": 1, "duplicates": 1, "another": 1, "none": 0}
    assert said(join([capture_of(INNER, [], ledger=ledger)])) == []
    ledger = {f"entry_{n}": n for n in (6, 5, 4, 3, 2, 1)}
    [(_, _, detail)] = said(join([capture_of(INNER, [], ledger=ledger)]))
    assert detail == ("sender-host: the capture missed records: entry_1 1, entry_2 2, entry_3 3, entry_4 4, entry_5 5")


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ({}, {"run": "a", "addresses": ["x", "y"], "boundary": "before_driver"}, []),
        (
            {"run": "a"},
            {"run": "b" * 70},
            [("same run", f"captures of different runs: sender-vm: a; sender-host: {'b' * 60}")],
        ),
        (
            {"addresses": ["x", "y"]},
            {"addresses": ["x", "z"]},
            [("same addresses", "captures of different addresses: sender-vm: x and y; sender-host: x and z")],
        ),
    ],
)
def test_what_differs_between_captures_is_named(
    outer: dict[str, Any], inner: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    joined = join([capture_of(OUTER, [], **outer), capture_of(INNER, [], **inner)])
    assert said(joined) == [(check, False, detail) for check, detail in expected]


def test_where_segments_end_is_said_unless_it_is_before_the_driver() -> None:
    def checks(*boundaries: str) -> list[tuple[str, bool, str]]:
        roles = [role for role in INWARDS if role != "host"]
        return said(join([capture_of(r, [], boundary=b) for r, b in zip(roles, boundaries, strict=False)]))

    assert checks("before_driver", "before_driver") == []
    [(check, ok, detail)] = checks("after_driver", "after_driver")
    assert (check, ok) == ("boundary", False) and detail.startswith("the segments end when the driver returns")
    [(check, ok, detail)] = checks("before_driver", "after_driver")
    assert (check, ok) == ("same boundary", False)
    assert detail.endswith("(sender-vm: before the driver; sender-host: after the driver)")


def without_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "id"} for row in rows]


def test_where_one_knows_no_ids_all_are_joined_by_sequence() -> None:
    irq, kick = ({"packets": [{"id": 7, "seq": seq, "total": 3.0}]} for seq in (2, 1))
    ended = {"id": 7, "seq": 3, "outcome": "timeout"}
    joined = two(without_id(echoes([2, 1])), [*echoes([1, 2], 80), ended], vhost_irq=irq, vhost_kick=kick)
    assert joined.paired == [(None, 1), (None, 2)]
    assert ([*joined.roles[INNER].irq], [*joined.roles[INNER].kick]) == ([(None, 2)], [(None, 1)])
    assert [*joined.roles[INNER].ended] == [(None, 3)]
    assert [check for check, _, _ in said(joined)] == ["stages of every echo"] * 2
    alone = join([capture_of(INNER, echoes([1], 80), vhost_irq={"packets": [{"seq": 1, "total": 3.0}]})])
    assert alone.joined_parts == {(INNER, "vhost_irq")}  # two tables of one capture, too
    one_table = join([capture_of(INNER, [*echoes([1], id=0), *without_id(echoes([2]))])])
    assert one_table.paired == [(None, 2), (0, 1)]


def test_of_two_pings_without_ids_the_first_echo_counts() -> None:
    rows = [*echoes([1], 81), *echoes([1], 82, id=9), *echoes([2], 83, id=9)]
    joined = two(without_id(echoes([1, 2])), rows)
    assert [row.total_us for row in joined.roles[INNER].echoes.values()] == [81, 83]
    why = "another capture has no ids: of each sequence number only the first echo counts"
    assert said(joined) == [("ids", False, f"sender-host saw 2 pings at once, and {why}")]


def ping(first: int, last: int, total: float) -> list[dict[str, Any]]:
    """Echoes of a ping whose sequence begins again at 0 after 65535."""
    return [{**echo(seq, 1, total - 2, 1), "seq": seq % WRAP} for seq in range(first, last)]


@pytest.mark.parametrize("turns", [1, 2])
def test_a_capture_that_began_later_is_put_into_the_round_that_fits(turns: int) -> None:
    """Its sequences are those of a later round, told by what the two share; its stages and losses go with them."""
    begin = WRAP * turns + 100
    irq = {"packets": [{"id": 7, "seq": 100, "total": 3.0}]}
    lost = {"id": 7, "seq": 200, "outcome": "timeout"}
    until_lost = [*ping(WRAP - 50, WRAP + 90, 100), *ping(WRAP + 120, begin - 10, 100)] if turns > 1 else []
    long = capture_of(OUTER, [*(until_lost or ping(WRAP - 50, begin - 10, 100)), *ping(begin - 10, begin + 20, 100)])
    late = capture_of(INNER, [*ping(begin, begin + 10, 80), lost], vhost_irq=irq)
    joined = join([long, late])
    expected: list[EchoKey] = [(7, begin + n) for n in range(10)]
    role = joined.roles[INNER]
    assert joined.paired == expected == [*role.echoes]
    assert ([*role.irq], [*role.ended]) == ([(7, begin)], [(7, begin + 100)])
    assert next(iter(joined.roles[OUTER].echoes)) == (7, WRAP - 50)


@pytest.mark.parametrize("turns", [1, 2])
def test_a_longer_capture_that_began_later_is_moved_back_to_the_others_rounds(turns: int) -> None:
    """Here sequences are counted on by the capture itself. The one with most echoes says which rounds these are."""
    begin = WRAP * turns + 100
    joined = two(echoes(range(100, 120)), echoes(range(begin, begin + 10), 80))
    assert (seqs(joined), [*joined.roles[INNER].echoes]) == ([*range(100, 110)], [(7, 100 + n) for n in range(10)])


def test_the_first_echo_of_the_second_round_is_of_the_second_round() -> None:
    assert seqs(two([*echoes([WRAP])], echoes([0], 80))) == [WRAP]


def test_without_a_second_round_nothing_is_moved() -> None:
    assert two(ping(WRAP - 5, WRAP, 100), ping(0, 5, 80)).paired == []
    apart = two(echoes([WRAP + 5]), echoes([3 * WRAP + 500], 80))
    assert [[*role.echoes] for role in apart.roles.values()] == [[(7, WRAP + 5)], [(7, 3 * WRAP + 500)]]
    joined = two(ping(WRAP - 5, WRAP + 5, 100), ping(WRAP - 5, WRAP + 3, 80))
    assert seqs(joined) == [*range(WRAP - 5, WRAP + 3)]


BOOT = {"clock": {"boot_id": "b"}}
CROSSED: dict[str, dict[str, Any]] = {
    "sender-host": {"inside": ["tap1"], "outside": ["tap2"], **BOOT},
    "receiver-host": {"inside": ["tap2"], "outside": ["tap1"], **BOOT},
}


def hosts(sender: dict[str, Any], receiver: dict[str, Any]) -> JoinedCaptures:
    summary = {"total_us": {"mean": 9.0}}
    return join([
        capture_of("sender-host", echoes([1], 80), **{**CROSSED["sender-host"], **sender}),
        capture_of("receiver-host", echoes([1], 70), summary=summary, **{**CROSSED["receiver-host"], **receiver}),
    ])  # fmt: skip


def test_two_captures_that_cross_the_same_taps_of_one_kernel_are_of_one_host() -> None:
    joined = hosts({}, {})
    sender, receiver = joined.roles["sender-host"], joined.roles["receiver-host"]
    assert joined.one_host and receiver.echoes is sender.echoes and receiver.ended is sender.ended
    assert receiver.summary is None


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [
        ({"clock": {"boot_id": "c"}}, {}),
        ({"clock": {"boot_id": ""}}, {"clock": {"boot_id": ""}}),
        ({"clock": None}, {"clock": None}),
        ({"inside": ["tap3"]}, {}),
        ({"outside": ["tap3"]}, {}),
        ({"outside": ["eth0"]}, {"outside": ["eth0"]}),
    ],
)
def test_other_captures_are_of_two_hosts(sender: dict[str, Any], receiver: dict[str, Any]) -> None:
    joined = hosts(sender, receiver)
    assert not joined.one_host
    assert joined.roles["receiver-host"].echoes is not joined.roles["sender-host"].echoes


def test_a_capture_may_say_that_both_ends_are_on_its_host() -> None:
    assert hosts({"one_host": True, "clock": None}, {}).one_host
    assert not hosts({"clock": None}, {"one_host": True}).one_host  # that of the sender's side counts
    assert join([capture_of("host", echoes([1]), one_host=True)]).one_host
    assert not join([capture_of("receiver-host", echoes([1]), one_host=True)]).one_host


@pytest.mark.parametrize(
    ("roles", "more", "missing"),
    [
        (["sender-vm"], {}, ["sender-host", "receiver-host", "receiver-vm"]),
        (["sender-vm", "sender-host", "receiver-host", "receiver-vm"], {}, []),
        (["host"], {}, ["receiver-host", "receiver-vm"]),
        (["host"], {"one_host": True}, ["receiver-vm"]),
        (["host", "receiver-vm"], {}, ["receiver-host"]),
    ],
)
def test_vantage_points_that_nobody_captured_are_named(roles: list[str], more: Any, missing: list[str]) -> None:
    assert roles_missing(join([capture_of(role, [], **more) for role in roles])) == missing


@pytest.mark.parametrize("beside", ["sender-vm", "sender-host"])
def test_a_host_that_pings_has_no_sender_beside_it(beside: str) -> None:
    with pytest.raises(BadInput, match=r"host\.json.*cannot stand beside a capture of a sender"):
        join([capture_of(beside, []), capture_of("host", [])])
    assert [*join([capture_of("receiver-vm", []), capture_of("host", [])]).roles] == ["host", "receiver-vm"]
