"""softnet: each column is what the kernel writes there, in old layouts and new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.telemetry.frames import Row
from netconsole_collector.kernel.cpus import ONLINE
from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import SourceError, SourceReading
from netconsole_collector.sources.net.softnet import SOFTNET, Softnet, parse_softnet
from tests.support.sources import SECOND_NS, tables_of


def below(root: Path, path: str) -> Path:
    """A file of a made-up host."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def rows(softnet: Softnet) -> list[Row]:
    (table,) = tables_of(softnet)
    return table.rows


def test_a_counter_that_runs_over_is_counted_on(tmp_path: Path) -> None:
    path = below(tmp_path, SOFTNET)
    softnet = Softnet(Here(tmp_path))
    for count, delta in (("fffffff0", 0), ("00000010", 32), ("00000011", 1)):
        path.write_text(f"{count} 00000000 00000000 0 0 0 0 0 0 0 0 0 00000000\n")
        (row,) = rows(softnet)
        assert row.counts["processed"].delta == delta


def test_softnet_knows_old_and_new_layouts() -> None:
    old = "00000010 00000001 00000002 0 0 0 0 0 0 00000003\n" * 2
    assert list(parse_softnet(old)) == [(0, (16, 1, 2, 3, 0)), (1, (16, 1, 2, 3, 0))]
    new = "00000010 00000001 00000002 0 0 0 0 0 0 00000003 00000004 00000000 00000005\n"
    assert list(parse_softnet(new)) == [(5, (16, 1, 2, 3, 4))]
    assert list(parse_softnet(new.removesuffix(" 00000005\n"))) == [(0, (16, 1, 2, 3, 4))]


def test_two_lines_of_one_cpu_make_no_drops(tmp_path: Path) -> None:
    """Their counters would be taken for one that wraps."""
    path = below(tmp_path, SOFTNET)
    lines = [" ".join(f"{one:08x}" for one in (n, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3)) for n in (10, 9)]
    path.write_text("\n".join(lines) + "\n")
    softnet = Softnet(Here(tmp_path))
    for _ in range(2):
        (table,) = tables_of(softnet)
        assert table.omitted == 1
        assert [count.total for row in table.rows for count in row.counts.values()] in ([0] * 5, [])


@pytest.mark.proves("softnet", "tables.cpus.{cpu,processed,dropped,time_squeeze,received_rps,flow_limit}")
def test_each_column_of_softnet_is_what_the_kernel_writes_there(tmp_path: Path) -> None:
    """net/core/net-procfs.c, softnet_seq_show: each line has all counts of a CPU, whose number is the 13th."""
    softnet = Softnet(Here(tmp_path))
    for text in ("1 1 1 0 0 0 0 0 0 1 1 0 5\n", "11 3 4 9 9 9 9 9 9 6 7 9 5\n"):
        below(tmp_path, SOFTNET).write_text(text)
        (row,) = rows(softnet)
    assert row.labels["cpu"] == 5
    added = {name: one.delta for name, one in row.counts.items()}
    assert added == {"processed": 0x10, "dropped": 2, "time_squeeze": 3, "received_rps": 5, "flow_limit": 6}


@pytest.mark.parametrize(("online", "cpus"), [("0-1,4", [0, 1, 4]), ("0-3,8-9", [0, 1, 2, 3]), ("", [0, 1, 2])])
def test_where_the_kernel_names_no_cpu_the_lines_are_those_that_are_online(
    tmp_path: Path, online: str, cpus: list[int]
) -> None:
    below(tmp_path, ONLINE).write_text(f"{online}\n")
    below(tmp_path, SOFTNET).write_text("00000010 00000001 00000002 0 0 0 0 0 0 00000003\n" * len(cpus))
    softnet = Softnet(Here(tmp_path))
    assert [row.labels["cpu"] for row in rows(softnet)] == cpus


def test_a_layout_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    below(tmp_path, SOFTNET).write_text("not hexadecimal\n")
    with pytest.raises(SourceError, match="layout"):
        Softnet(Here(tmp_path)).read(SourceReading(SECOND_NS))
    with pytest.raises(SourceError, match="No such file"):
        Softnet(Here(tmp_path / "missing")).open()
