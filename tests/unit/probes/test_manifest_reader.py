"""Probe manifests: the shipped ones are whole, and every mistake is named with file, key and expected form."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base import paths
from netconsole.base.errors import BadInput
from netconsole.probes import catalogue as probes
from netconsole.probes.catalogue import Catalogue
from netconsole.probes.manifest import CODE, MODES
from netconsole.run.doctor import limits_on

GOOD = """
[probe]
name = "sample"
version = 1
title = "Sample"
summary = "What it measures."
cost = "per drop"
modes = ["summary", "details"]

[knobs]
device = ""
port = 0
late_us = 10

[[programs]]
name = "drop"
required = true
measures = "every drop"
attach = [{ point = "raw_tracepoint:kfree_skb", function = "drop_raw" }]

[counters.drops]
slot = 0
unit = "packets"
help = "Packets dropped."

[tables.drops]
map = "drops"
title = "Drops"
counter = "drops"
key = [{ name = "reason", type = "u32", as = "drop_reason" }, { type = "pad[4]" }]
value = [{ name = "count", type = "u64", unit = "packets" }]
sort = "count"

[[findings]]
table = "drops"
value = "count"
level = "!"
over = 1.0
where = { class = "suspicious" }
say = "{rate}/s {reason}"
next = "Look there."
"""


def make(directory: Path, text: str, name: str = "sample") -> Path:
    probe = directory / name
    probe.mkdir(exist_ok=True)
    (probe / probes.MANIFEST).write_text(text)
    (probe / CODE).write_text("int x;\n")
    return probe


def mistakes(directory: Path, text: str) -> dict[str, str]:
    with pytest.raises(BadInput) as error:
        probes.load(make(directory, text))
    return {problem.key: problem.message for problem in error.value.problems}


def test_the_shipped_probes_are_whole() -> None:
    catalogue = probes.load_all([paths.data("probes")])
    assert catalogue.broken == {}
    assert {"kernel_drops", "tx_queue_latency", "softirq_health", "socket_drops", "link_rates", "self_cost"} <= set(
        catalogue
    )
    for manifest in catalogue.values():
        assert bool(manifest.code()) == (manifest.source == "bpf")
        assert manifest.cannot_see, f"{manifest.name} says nothing of what it cannot see"
        rules = [case for rule in manifest.findings for case in rule.cases.values() or [rule]]
        assert all(rule.next for rule in rules if rule.level != "ok")


def test_a_probe_is_found_in_a_family_and_beside_families(tmp_path: Path) -> None:
    family = tmp_path / "net"
    family.mkdir()
    direct, inside = make(tmp_path, GOOD.replace('"sample"', '"direct"'), "direct"), make(family, GOOD)
    make(direct, GOOD, "backup")  # a directory with a manifest is a probe: it has none inside
    make(tmp_path, GOOD, "common")  # never one
    assert probes.directories_in(tmp_path) == {"direct": direct, "sample": inside}
    assert list(probes.load_all([tmp_path])) == ["direct", "sample"]
    assert probes.directories_in(tmp_path / "missing") == {}


def test_starts_of_softirqs_are_watched_before_they_are_asked_for() -> None:
    """Programs are attached in turn: a raise whose start nobody saw would make the next start seem to be late."""
    names = [program.name for program in probes.shipped("softirq_health").programs]
    assert names.index("entered") < names.index("raised")


def test_a_good_manifest_is_read(tmp_path: Path) -> None:
    manifest = probes.load(make(tmp_path, GOOD))
    assert manifest.tables["drops"].labels == ("reason", "class", "provenance")
    assert manifest.programs[0].attach[0].point == "raw_tracepoint:kfree_skb"
    assert manifest.knobs == {"device": "", "port": 0, "late_us": 10}
    assert manifest.tables["drops"].value[0].worse == "up"  # by its name
    assert (manifest.topic, [place.pane for place in manifest.panes]) == ("sample", ["host"])
    assert probes.load(make(tmp_path, f"panes = []\n{GOOD}")).panes == ()
    said = GOOD.replace('unit = "packets" }', 'unit = "packets", worse = "none" }')
    assert probes.load(make(tmp_path, said)).tables["drops"].value[0].worse == "none"


def test_four_knobs_of_its_own_are_the_most_beside_common_ones_and_sets(tmp_path: Path) -> None:
    four = 'late_us = 10\nb_us = 1\nc_us = 1\nd_us = 1\nvlan = 0\nseen_pct = 100\ninside_devices = "vnet*"'
    assert len(probes.load(make(tmp_path, GOOD.replace("late_us = 10", four))).knobs) == 9


@pytest.mark.parametrize(
    ("old", "new", "key", "said"),
    [
        ('name = "sample"', 'name = "other"', "probe.name", '"sample"'),
        ("version = 1", "version = 0", "probe.version", "from 1"),
        ("version = 1", 'version = "1"', "probe.version", "whole number"),
        ('title = "Sample"', "", "probe.title", "missing"),
        ('cost = "per drop"', 'cost = "per dorp"', "probe.cost", 'did you mean "per drop"?'),
        ('cost = "per drop"', 'coast = "per drop"', "probe.coast", 'did you mean "cost"?'),
        ('modes = ["summary", "details"]', 'modes = ["details"]', "probe.modes", '"summary"'),
        ("required = true", "unless = 7", "programs[0].unless", "text"),
        ("required = true", 'unless = "OVS_DROP_METER"', "programs[0].unless", "HAVE_"),
        ("required = true", 'unless = "HAVE_x y"', "programs[0].unless", "HAVE_"),
        ('"drop_raw" }', '"drop_raw", when = "HAVE_x\\n#include" }', "programs[0].attach[0].when", "HAVE_"),
        ("[knobs]", "[[limits]]\nbefore = '6.7'\n[knobs]", "limits[0].says", "missing"),
        ("[knobs]", "[[limits]]\nsays = 'it'\n[knobs]", "limits[0].before", "either this or since"),
        ("[knobs]", "[[limits]]\nbefore = '6.7'\nsince = '6'\nsays = 'it'\n[knobs]", "limits[0].before", "either"),
        ("[knobs]", "[[limits]]\nsince = ''\nsays = 'it'\n[knobs]", "limits[0].since", "such as 6.7"),
        ("[knobs]", "[[limits]]\nsince = '6.7-rc1'\nsays = 'it'\n[knobs]", "limits[0].since", "such as 6.7"),
        ("[knobs]", "[[limits]]\nbefore = 6.7\nsays = 'it'\n[knobs]", "limits[0].before", "text"),
        ("port = 0", "port = 70000", "knobs.port", "0 to 65535"),
        ("late_us = 10", "late = 10", "knobs.late", "unit"),
        ("late_us = 10", "Late_us = 10", "knobs.Late_us", "lower-case"),
        ("late_us = 10", "a_us = 1\nb_us = 1\nc_us = 1\nd_us = 1\ne_us = 1", "knobs", "at most 4 of"),
        ('"raw_tracepoint:kfree_skb"', '"kfree_skb"', "programs[0].attach[0].point", "KIND:NAME"),
        ("slot = 0", "slot = 32", "counters.drops.slot", "0 to 31"),
        ("slot = 0", 'slot = 0\nmodes = ["detials"]', "counters.drops.modes", 'did you mean "details"?'),
        ('counter = "drops"', 'counter = "dorps"', "tables.drops.counter", 'did you mean "drops"?'),
        ('type = "u32"', 'type = "u33"', "tables.drops.key[0].type", "u8 u16"),
        ('as = "drop_reason"', 'as = "reason"', "tables.drops.key[0].as", "drop_reason"),
        ('unit = "packets" }', 'unit = "packets", worse = "more" }', "tables.drops.value[0].worse", "up, down, none"),
        ('as = "drop_reason"', 'as = "drop_reason", worse = "up"', "tables.drops.key[0].worse", "unknown key"),
        ('sort = "count"', 'sort = "packets"', "tables.drops.sort", "column"),
        ('sort = "count"', 'sort = "count"\ncolumns = ["raeson", "count"]', "tables.drops.columns", 'mean "reason"?'),
        ('sort = "count"', 'sort = "count"\ncolumns = ["class"]', "tables.drops.columns", '"count" too'),
        ('sort = "count"', 'sort = "count"\ncolumns = ["count", "count"]', "tables.drops.columns", "twice"),
        ('sort = "count"', 'sort = "count"\npage = "ovs-dorp"', "tables.drops.page", 'did you mean "ovs-drop"?'),
        ('sort = "count"', 'sort = "count"\nwords = 3', "tables.drops.words", "expected a table"),
        (
            'sort = "count"',
            'sort = "count"\n[tables.drops.words.raeson]',
            "tables.drops.words.raeson",
            'mean "reason"?',
        ),
        ('sort = "count"', 'sort = "count"\nwords = { reason = { A = 1 } }', "tables.drops.words.reason.A", "a text"),
        ('as = "drop_reason"', 'stands_for = "proces"', "tables.drops.key[0].stands_for", 'did you mean "process"?'),
        ('unit = "packets" }', 'unit = "packets", stands_for = "cpu" }', "tables.drops.value[0].stands_for", "unknown"),
        (
            'unit = "packets" }',
            f'unit = "packets", head = "{"long " * 9}" }}',
            "tables.drops.value[0].head",
            "24 printable",
        ),
        ('unit = "packets" }', 'unit = "packets", head = "\\u001b[m" }', "tables.drops.value[0].head", "printable"),
        ('unit = "packets" }', 'unit = "packets", spare = 100 }', "tables.drops.value[0].spare", "0 to 99"),
        ('title = "Sample"', 'title = "Sample"\ntopic = "\\n"', "probe.topic", "printable"),
        ("[knobs]", "[[panes]]\npane = 'drop'\n[knobs]", "panes[0].pane", 'did you mean "drops"?'),
        ("[knobs]", "[[panes]]\npane = 'drops'\ntable = 'dorps'\n[knobs]", "panes[0].table", 'did you mean "drops"?'),
        ("[knobs]", "[[panes]]\npane = 'overview'\n[knobs]", "panes[0].table", "missing"),
        ("[knobs]", "[[panes]]\npane = 'ovs'\ndrawn = 'ovs-dorps'\n[knobs]", "panes[0].drawn", 'mean "ovs-drops"?'),
        (
            "[knobs]",
            "[[panes]]\npane = 'ovs'\ntable = 'drops'\ndrawn = 'ovs-drops'\n[knobs]",
            "panes[0].drawn",
            "alone",
        ),
        ("[knobs]", "[[panes]]\npane = 'drops'\nalways = true\n[knobs]", "panes[0].always", "overview alone"),
        ("[knobs]", "[[panes]]\npane = 'drops'\nrow = 0\n[knobs]", "panes[0].row", "from 1"),
        ("[knobs]", "[panes]\n[knobs]", "panes", "list of tables"),
        (
            "[knobs]",
            "[[panes]]\npane = 'drops'\n[[panes]]\npane = 'drops'\ntable = 'drops'\n[knobs]",
            "panes[1].pane",
            "already",
        ),
        ("[knobs]", "[[governed_by]]\n[knobs]", "governed_by[0].facts", "list of fact keys"),
        (
            "[knobs]",
            "[[governed_by]]\nfacts = ['ovs/*']\nfigures = ['']\n[knobs]",
            "governed_by[0].figures",
            "1 to 128",
        ),
        ("[knobs]", "[[governed_by]]\nfacts = 'ovs/*'\n[knobs]", "governed_by[0].facts", "list of texts"),
        ("[knobs]", "[losses]\nmap_ful = 'x'\n[knobs]", "losses.map_ful", 'did you mean "map_full"?'),
        ('unit = "packets"\nhelp', 'unit = "packets"\nloss = 1\nhelp', "counters.drops.loss", "true or false"),
        ('unit = "packets"\nhelp', 'unit = "packets"\nneeds = ["dorp"]\nhelp', "counters.drops.needs", 'mean "drop"?'),
        ('unit = "packets" }', 'unit = "packets", needs = ["dorp"] }', "tables.drops.value[0].needs", 'mean "drop"?'),
        ('class = "suspicious"', 'clas = "suspicious"', "findings[0].where.clas", 'did you mean "class"?'),
        ("{reason}", "{raeson}", "findings[0].say", 'did you mean "reason"?'),
        ("{reason}", "{reason.__class__}", "findings[0].say", "no column"),
        ("{reason}", "{reason!r}", "findings[0].say", "format"),
        ("{reason}", "{", "findings[0].say", "braces"),
        ('table = "drops"', 'table = "drop"', "findings[0].table", 'did you mean "drops"?'),
        ('level = "!"', 'level = "!!!"', "findings[0].level", "!"),
        ("[counters.drops]", "[counters.Drops]", "counters.Drops", "lower-case"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_the_expected_form(
    tmp_path: Path, old: str, new: str, key: str, said: str
) -> None:
    assert old in GOOD
    assert said in mistakes(tmp_path, GOOD.replace(old, new))[key]


def test_what_names_no_modes_is_of_all(tmp_path: Path) -> None:
    text = GOOD.replace("required = true", 'required = true\nmodes = ["summary", "details"]')
    manifest = probes.load(make(tmp_path, text))
    assert [program.modes for program in manifest.programs] == [("summary", "details")]
    assert manifest.counters["drops"].modes == manifest.tables["drops"].modes == MODES


def test_what_it_cannot_see_on_some_kernels_is_of_those(tmp_path: Path) -> None:
    limits = """
[[limits]]
before = "6.7"
says = "the old"

[[limits]]
since = "6.10"
says = "the new"

[knobs]
"""
    text = GOOD.replace("[knobs]", limits).replace('modes = ["', 'cannot_see = "All."\nmodes = ["')
    manifest = probes.load(make(tmp_path, text))
    assert manifest.cannot_see == "All. Before kernel 6.7: the old. From kernel 6.10 on: the new."
    old, new = "before kernel 6.7 it cannot see the old", "from kernel 6.10 on it cannot see the new"
    on = {"5.10.0-39-amd64": [old], "6.6": [old], "6.7.0": [], "6.9": [], "6.10": [new], "7.3": [new], "": []}
    assert {release: limits_on(manifest, release) for release in on} == on


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = (
        GOOD.replace("version = 1", "version = 0").replace('unit = "packets"\nhelp', "help").replace("over = 1.0", "")
    )
    found = mistakes(tmp_path, text + "\n[surprise]\n")
    assert {"probe.version", "counters.drops.unit", "surprise"} <= set(found)


def test_a_probe_without_its_code_is_refused(tmp_path: Path) -> None:
    directory = make(tmp_path, GOOD)
    (directory / CODE).unlink()
    with pytest.raises(BadInput, match=r"probe\.bpf\.c: missing"):
        probes.load(directory)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"x" * (1024 * 1024),
        b"[probe\n",
        b"x = " + b"[" * 20_000,
        b"x = 1" + b"0" * 10_000,
        b"[[probe]]\n",
        b"probe = 1\n",
        b"knobs = []\nprograms = 3\ntables = 'x'\n",
    ],
)
def test_garbage_is_refused_in_short_printable_lines(tmp_path: Path, content: bytes) -> None:
    directory = tmp_path / "sample"
    directory.mkdir()
    (directory / probes.MANIFEST).write_bytes(content)
    with pytest.raises(BadInput) as error:
        probes.load(directory)
    lines = str(error.value).splitlines()
    assert 1 <= len(lines) <= 21
    assert all(line.isprintable() and len(line) <= 401 for line in lines)


def test_a_broken_probe_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    make(tmp_path, GOOD)
    make(tmp_path, GOOD, "broken")
    catalogue = probes.load_all([tmp_path])
    assert list(catalogue) == ["sample"]
    with pytest.raises(BadInput, match="the name of its directory"):
        probes.pick(catalogue, "broken")
    with pytest.raises(BadInput, match="broken"):
        catalogue.require_whole()


def test_an_unknown_probe_is_refused_with_what_is_close(tmp_path: Path) -> None:
    make(tmp_path, GOOD)
    with pytest.raises(BadInput, match='unknown probe; did you mean "sample"'):
        probes.pick(probes.load_all([tmp_path]), "smaple")
    assert isinstance(probes.load_all([tmp_path]), Catalogue)


def test_probes_are_never_read_from_a_users_own_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert all(tmp_path not in directory.parents for directory in paths.probe_directories())
    assert tmp_path in paths.profile_directories()[0].parents


EXAMPLE = """
[tables.drops.example]
map = "examples"
record = [
  { name = "mono_ns", type = "u64", as = "time" },
  { name = "came_in_by", type = "char[16]", as = "text", stands_for = "device" },
  { type = "pad[4]" },
]
"""


def test_a_table_may_keep_the_latest_packet_of_its_rows(tmp_path: Path) -> None:
    text = GOOD.replace("[[findings]]", f"{EXAMPLE}\n[[findings]]")
    text = text.replace('unit = "packets" }]\nsort', 'unit = "packets" }, { type = "pad[8]" }]\nsort')
    table = probes.load(make(tmp_path, text)).tables["drops"]
    assert [(one.name, one.stands_for) for one in table.example] == [("mono_ns", "itself"), ("came_in_by", "device")]
    assert [one.name for one in table.value] == ["count"]


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ('map = "examples"\n', "", "tables.drops.example.map", "missing"),
        ('"mono_ns"', '"came_ns"', "tables.drops.example.record", "expected { name = \"mono_ns\""),
        ('[tables.drops.example]', 'ways = 2\n[tables.drops.example]', "tables.drops.example", "expected no ways"),
        ('map = "examples"\n', 'map = "examples"\nrows = 3\n', "tables.drops.example.rows", "unknown key"),
    ],
)  # fmt: skip
def test_a_mistake_in_what_is_kept_of_a_packet_is_named(
    tmp_path: Path, old: str, new: str, key: str, message: str
) -> None:
    text = GOOD.replace("[[findings]]", f"{EXAMPLE.replace(old, new)}\n[[findings]]")
    [problem] = [found for at, found in mistakes(tmp_path, text).items() if at == key]
    assert message in problem


SUMS = """
[tables.many]
title = "Many"
most = 100
key = [{ name = "port", type = "u16", as = "port" }, { name = "peer", type = "u16" }, { name = "host", type = "addr" }]
value = [{ name = "packets" }, { name = "bytes" }, { type = "pad[16]" }]

[tables.sums]
title = "Sums"
sums = "many"
key = [{ name = "least", type = "u16", least_of = ["port", "peer"] }, { name = "host", type = "addr", as = "prefix" }]
value = [{ name = "packets" }, { name = "rows", kind = "max" }]
"""


def test_a_table_may_add_up_very_many_rows_of_another(tmp_path: Path) -> None:
    tables = probes.load(make(tmp_path, GOOD.replace("[[findings]]", f"{SUMS}\n[[findings]]"))).tables
    assert [one.name for one in tables["many"].value] == ["packets", "bytes"]
    assert [one.name for one in tables["sums"].key] == ["least", "host"]


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("most = 100", "most = 3", "tables.many.most", "4"),
        ("most = 100", "", "tables.sums.sums", "expected a table before it that has most"),
        ('sums = "many"', 'sums = "drops"', "tables.sums.sums", "expected a table before it that has most"),
        ('sums = "many"', 'sums = "sums"\nmost = 9', "tables.sums.sums", "expected a table before it that has most"),
        ('["port", "peer"]', '["port", "pear"]', "tables.sums.key[0].least_of", 'mean "peer"?'),
        ('["port", "peer"]', "[]", "tables.sums.key[0].least_of", "expected labels of many"),
        ('"least", type = "u16", least_of = ["port", "peer"]', '"prot"', "tables.sums.key[0].name", 'mean "port"?'),
        ('value = [{ name = "packets" }, { name = "rows"', 'value = [{ name = "packet" }, { name = "rows"',
         "tables.sums.value", 'mean "packets"?'),
    ],
)  # fmt: skip
def test_a_mistake_in_sums_is_named(tmp_path: Path, old: str, new: str, key: str, message: str) -> None:
    assert old in SUMS
    found = mistakes(tmp_path, GOOD.replace("[[findings]]", f"{SUMS.replace(old, new)}\n[[findings]]"))
    assert message in found[key]
