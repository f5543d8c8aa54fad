"""Reports put the answer first, and show names from outside as text, whatever they are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from netconsole.base.figure import safe
from netconsole.compare.compare import compare
from netconsole.probes.catalogue import load_all
from netconsole.report import Document, of_comparison, of_snapshot, ticket, to_html, to_markdown, to_text
from netconsole.report.blocks import (
    SHORT_LINES,
    Bars,
    Curve,
    Heading,
    Note,
    ReportBlock,
    SummaryLine,
    SummaryLines,
    TextTable,
)
from netconsole.report.formats.to_markdown import escape
from netconsole.report.of_samples import samples
from netconsole.report.short_form import gaps
from netconsole.snapshot.document import HistogramData, Snapshot, load
from tests.conftest import CANNOT
from tests.support import made_up

HOSTILE = [
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "a|b||c",
    "`code` ``more",
    "[bold]x[/bold]",
    "[link](javascript:alert(1))",
    "![image](http://192.0.2.1/x.png)",
    "**bold** __bold__ _x_ ~~gone~~",
    "http://192.0.2.1/ www.example.org <http://192.0.2.1>",
    "\x1b[31mred\x1b[0m \x07 \u202egnp.exe",
    "'; DROP TABLE x; --\" onmouseover=\"document.title='owned'",
    "</style></svg></title></table><h1>big",
    "# heading\n\n- list\n\n---\n| a | b |",
    "&lt;b&gt; &amp; &#60;",
    "]]>-->\\",
]
PACKET = ("protocol", "source", "target", "source_port", "vlan", "source_mac", "target_mac", "came_in_by")
VERSION_1 = Path(__file__).parents[2] / "support/data/snapshot-version-1.json"


def hostile() -> Snapshot:
    """A snapshot in which everything that can be a name is one of HOSTILE."""
    document = made_up.document(1, drops_per_s=100, samples=200)
    for number, name in enumerate(HOSTILE):
        for row in document["probes"]["kernel_drops"]["tables"]["drops"][:1]:
            document["probes"]["kernel_drops"]["tables"]["drops"].append(
                {**row, "device": name, "count": 99, name: name}
            )
        document["probes"][name] = {"status": "failed", "why": name}
        document["facts"][f"nic/{name}/mtu"] = {"value": name, "source": name}
        labels = document["probes"]["tx_queue_latency"]["histograms"]["wait"]["by"]
        labels[number % len(labels)]["labels"] = {name: name}
        document["probes"]["kernel_drops"]["counters"][name] = {"total": number, "unit": name}
        document["probes"]["kernel_drops"].setdefault("history", {})[name] = [1.0, None, 2.0, 3.0]
        document["probes"]["kernel_drops"].setdefault("events", []).append({name: name, "stack": [name, name]})
        document["governor"] = [*document.get("governor", []), {"probe": name, "because": name}]
        packet = {"came": name, "fields": dict.fromkeys(PACKET, name)}
        document["probes"]["kernel_drops"].setdefault("row_examples", {"drops": []})["drops"].append(packet)
    drops = document["probes"]["kernel_drops"]
    drops["row_examples"]["drops"] += [None] * (len(drops["tables"]["drops"]) - len(HOSTILE))
    drops["row_examples"]["drops"].reverse()
    everything = " ".join(HOSTILE)
    document["note"] = document["host"]["name"] = document["host"]["kernel"] = document["profile"]["name"] = everything
    document["profile"]["budget"] = {HOSTILE[0]: 1.0, "kernel_cpu_pct": 2.0}
    return msgspec.convert(document, Snapshot)


class Shown(HTMLParser):
    """The elements, attributes and text of an HTML document."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str | None] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links |= {value for name, value in attrs if name == "href"}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    """A report of a hostile snapshot, and one of a comparison with one."""
    baseline = made_up.snapshot(2, samples=200)
    return [of_snapshot(hostile(), load_all()), of_comparison(compare(hostile(), [baseline], HOSTILE[:1]))]


def test_html_has_no_element_or_attribute_from_a_name(documents: list[Document]) -> None:
    allowed = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "p",
        "ul",
        "li",
        "b",
        "span",
        "div",
        "table",
        "code",
        "wbr",
        "nav",
        "a",
    }
    allowed |= {"thead", "tbody", "tr", "th", "td", "figure", "figcaption", "svg", "rect", "line", "text", "polyline"}
    for document in documents:
        page = to_html(document)
        shown = Shown(page)
        assert shown.elements <= allowed
        assert not {name for name in shown.attributes if name.startswith("on") or name in ("src", "style")}
        assert shown.links == {f"#part-{number}" for number in range(1, 1 + page.count("<h2 "))}, (
            "to its own parts alone"
        )
        for name in HOSTILE[:3]:
            assert safe(name) in shown.text
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", page)


def test_markdown_renders_every_name_as_text(documents: list[Document]) -> None:
    renderer = MarkdownIt("commonmark").enable("table").enable("strikethrough")
    for document in documents:
        shown = Shown(renderer.render(to_markdown(document)))
        assert shown.elements <= {"h1", "h2", "p", "ul", "li", "strong", "code", "details", "summary"} | {
            "table", "thead", "tbody", "tr", "th", "td",
        }  # fmt: skip
        for name in HOSTILE:
            assert re.sub(r"\s+", " ", safe(name)) in re.sub(r"\s+", " ", shown.text)


@given(st.text(max_size=80))
def test_any_text_renders_as_itself_in_markdown(text: str) -> None:
    expected = re.sub(r"\s+", " ", safe(text).strip()).strip()
    for page in (f"{escape(text)}", f"# {escape(text)}", f"- **{escape('!!')}** {escape(text)}"):
        shown = Shown(MarkdownIt("commonmark").enable("table").enable("strikethrough").render(page))
        assert shown.elements <= {"p", "h1", "ul", "li", "strong"}
        assert re.sub(r"\s+", " ", shown.text).strip().removeprefix("!!").strip() == expected


@given(st.lists(st.lists(st.text(max_size=20), min_size=2, max_size=2), max_size=5), st.text(max_size=20))
def test_any_document_becomes_text_markdown_and_html(rows: list[list[str]], text: str) -> None:
    blocks: list[ReportBlock] = [
        Heading(text),
        Note(text),
        SummaryLines([SummaryLine("!", text, text)]),
        TextTable([text, "b"], rows, frozenset({1}), 3),
    ]
    curve = Curve(text, "per s", [None, 0.0, 3.0])
    document = Document(text, text, [*blocks, Bars(text, "us", [(0.0, 1.0, 5)], {"p50": 0.5}), curve])
    for page in (to_text(document), to_markdown(document), to_html(document)):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", page)


def test_text_has_nothing_but_printable_characters(documents: list[Document]) -> None:
    for document in documents:
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", to_text(document))


@pytest.mark.skipif(shutil.which("chromium") is None, reason=f"{CANNOT}no chromium")
def test_a_browser_shows_the_names_and_runs_nothing(documents: list[Document], tmp_path: Path) -> None:
    for number, document in enumerate(documents):
        page = tmp_path / f"{number}.html"
        page.write_text(to_html(document))
        printed = tmp_path / f"{number}.pdf"
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        both = [*browser, "--dump-dom", f"--print-to-pdf={printed}", page.as_uri()]
        dumped = subprocess.run(both, check=True, capture_output=True, text=True)
        shown = Shown(dumped.stdout)
        title = re.search(r"<title>(.*?)</title>", dumped.stdout)
        assert title is not None
        assert title[1].startswith("netconsole ")
        assert not {"script", "img"} & shown.elements and all(str(link).startswith("#part-") for link in shown.links)
        assert HOSTILE[0] in shown.text
        assert printed.read_bytes().startswith(b"%PDF")


def test_the_answer_comes_first() -> None:
    report = of_snapshot(load(VERSION_1), load_all())
    headings = [block.text for block in report.blocks if isinstance(block, Heading)]
    assert headings == ["Note", "What stands out", "What watching cost", "Not measured"]
    text = to_text(report)
    assert "vnet3: its ring is full (the guest does not keep up): 2.00k TCP packets/s lost" in text
    assert "vhost_net is not loaded on this host" in text
    assert "web-07 is slow since 20:55" in text
    assert text.index("its ring is full") < text.index("KERNEL DROPS")


@pytest.mark.parametrize("compared", [False, True])
def test_a_ticket_says_all_that_matters_in_40_lines_whatever_went_wrong(compared: bool) -> None:
    document = made_up.document(77, wait_us=200, drops_per_s=50, samples=200)
    document["note"] = "slow since 20:55\n\nand only web-07"
    document["profile"]["budget"] = {"kernel_cpu_pct": 1.0, "user_cpu_pct": 1.0, "memory_mb": 1.0, "events_per_s": 1.0}
    usage = {"cpu_pct": 9.0, "rss_kb": 9000, "pss_kb": 8000}
    document["cost"] = {"kernel_cpu_pct": 9.0, "events_per_s": 9.0, "console": usage, "collector": usage}
    for number in range(30):
        document["probes"][f"probe{number}"] = {"status": "failed", "why": f"reason {number % 10}"}
    times = {"began": "2026-11-22T21:00:03Z", "ended": "2026-11-22T21:00:25Z", "duration_s": 22.0}
    document["created"] = "2026-11-22T21:00:00Z"
    counts = {"total": 21010, "peak_per_s": 955.0, "unit": "packets"}
    incident = {"level": "!!", "cause": "ring-full", "next": ["look"], **times, **counts}
    document["incidents"] = [
        {**incident, "what": f"vnet{n} loses", "commands": [f"ip link show vnet{n}"]} for n in range(20)
    ]
    snapshot = msgspec.convert(document, Snapshot)
    against = ([made_up.snapshot(1, samples=200)], ["monday.json"]) if compared else None
    page = ticket.render(snapshot, "md", load_all(), against)[0].decode()
    short, opens, behind = page.partition("<details>")
    assert opens and len(short.splitlines()) <= SHORT_LINES
    lasted = (
        "vnet0 loses; from 21:00:03 to 21:00:25 (22 s): 21\u202f010 packets, peak 955/s → look `ip link show vnet0`"
    )
    for told in (
        "slow since 20:55 and only web-07",
        lasted,
        "over the budget",
        "probe0, probe10, probe20: failed: reason 0",
    ):
        assert told in short, told
    assert "vnet19 loses" in behind and "probe29" in behind and "vnet19 loses" not in short
    assert compared == ("Regressed" in short)


def test_a_reason_that_several_probes_give_is_said_once() -> None:
    document = made_up.document(3)
    for name, what in (("one", "how long packets wait"), ("two", "interrupts")):
        why = f"this kernel has no kprobes (CONFIG_KPROBE_EVENTS); netconsole cannot measure {what}"
        document["probes"][name] = {"status": "unsupported", "why": why}
    said = [line.text for line in gaps(msgspec.convert(document, Snapshot))]
    assert said == ["one, two: unsupported: this kernel has no kprobes (CONFIG_KPROBE_EVENTS)"]


def test_what_a_filter_hides_is_said_beside_the_balance() -> None:
    lost = {"stage": "qdisc", "device": "eth0", "dropped": 300, "unexplained": 300, "hidden_by": ["netns"]}
    document = {**made_up.document(3), "balance": [lost]}
    text = " ".join(to_text(of_snapshot(msgspec.convert(document, Snapshot), load_all())).split())
    assert "The kernel counts 300 more lost packets. The filter by netns may hide them from kernel_drops" in text
    assert "Probes saw" not in text


def test_a_probe_that_was_detached_is_named_beside_the_balance() -> None:
    lost = {"stage": "qdisc", "device": "eth0", "dropped": 300, "unexplained": 100}
    document = {**made_up.document(3), "balance": [lost]}
    document["probes"]["kernel_drops"] = {"status": "off", "why": "over the budget"}
    text = " ".join(to_text(of_snapshot(msgspec.convert(document, Snapshot), load_all())).split())
    assert "Probes saw 66.7 % of the 300 packets" in text
    assert (
        "kernel_drops was not attached at the end (over the budget): what was lost without it is unexplained." in text
    )


def test_what_a_probe_was_narrowed_to_is_said_above_its_figures() -> None:
    document = made_up.document(3)
    document["probes"]["kernel_drops"]["filters"] = {"reason": "not:NO_SOCKET", "netns": 7}
    text = " ".join(to_text(of_snapshot(msgspec.convert(document, Snapshot), load_all())).split())
    assert "Only what passes the filter reason=not:NO_SOCKET netns=7." in text


def test_nothing_that_is_unknown_is_shown_as_zero_and_losses_are_marked() -> None:
    document = json.loads(VERSION_1.read_text())
    document["probes"]["kernel_drops"]["ledger"] = {"missed": 7}
    document["cost"]["kernel_cpu_pct"] = None
    text = to_text(of_snapshot(msgspec.convert(document, Snapshot), load_all()))
    assert "≥20\u202f310" in text
    assert "counts are a lower bound (≥): 7 runs that the kernel skipped because a program was already running" in text
    assert re.search(r"in the kernel, of one core +–", text)


def test_the_budget_for_each_packet_is_held_against_what_each_took() -> None:
    document: dict[str, Any] = made_up.document(1, samples=20)
    document["profile"]["budget"] = {"ns_per_packet": 1000.0, "record_mb_per_min": 10.0}
    document["cost"] = {"kernel_cpu_pct": 5.0}
    for processed, said in ((500_000, " 1 us +1 us +ok"), (400_000, "1.25 us +1 us +! over"), (500, "–")):
        row = {"cpu": 0, "processed": processed}
        document["probes"]["softnet"] = {"status": "attached", "tables": {"cpus": [row]}, "duration_s": 10.0}
        text = to_text(of_snapshot(msgspec.convert(document, Snapshot)))
        assert re.search(rf"for each packet .* {said}", text), text
        assert "record_mb_per_min" not in text


def test_no_percentile_lies_beyond_the_longest_or_the_shortest() -> None:
    buckets = [(60.0, 70.0, 99)]
    data = HistogramData(unit="ms", count=99, sum=6300.0, min=66.0, max=68.0, buckets=buckets)
    assert data.percentile(50) == 66.0
    assert msgspec.structs.replace(data, min=None, max=63.9).percentile(99.9) == 63.9


def test_a_quiet_run_says_what_was_looked_at() -> None:
    document: dict[str, Any] = made_up.document(1, samples=20)
    for row in document["probes"]["kernel_drops"]["tables"]["drops"]:
        row["count"] = 0
    text = to_text(of_snapshot(msgspec.convert(document, Snapshot), load_all()))
    assert "ok nothing stands out in 3 probes: kernel_drops, link_rates, tx_queue_latency" in text


def test_a_comparison_says_verdict_causes_and_what_was_left_out() -> None:
    fact = "nic/vnet3/offload/tx-tcp-segmentation"
    current = made_up.snapshot(77, wait_us=100, samples=500, facts={fact: "off"})
    text = to_text(of_comparison(compare(current, [made_up.snapshot(1, samples=500)], ["monday.json"])))
    assert "Regressed: something is worse beyond chance." in text
    verdict = text[: text.index("FINDINGS")]
    cause, worst = (
        verdict.index(f"cause? {fact}: on before, off now; it may explain finding 1"),
        verdict.index("!! worse 1. "),
    )
    assert cause < worst, "the cause comes first"
    assert re.search(r"!! worse 1\. (P99|P90|P50|Mean) of wait on vnet3, queue \d rose from \S+ us to \S+ us", verdict)
    assert "baseline: monday.json, hv-017" in text
    assert "fewer than three runs of the baseline have this figure" in text


def test_samples_that_differ_in_time_alone_are_one_row_and_a_stack_is_told_once() -> None:
    begin_ns = 1_795_251_600_000_000_000
    events = [
        {
            "name": "drop",
            "wall_ns": begin_ns + n,
            "mono_ns": n,
            "cpu": n % 2,
            "reason": "NO_SOCKET",
            "vlan": 0,
            "stack": ["a", "b"],
        }
        for n in range(7)
    ]
    events += [{"name": "drop", "wall_ns": 1 << 80, "reason": "QDISC_DROP", "stack": "no list"}, {"name": "drop"}]
    note, kinds, stacks = samples(events)
    assert isinstance(note, Note) and note.text.startswith("9 samples, name drop;")
    assert isinstance(kinds, TextTable) and kinds.columns == ["samples", "first at (UTC)", "reason"]
    assert kinds.rows == [["7", "09:00:00.000", "NO_SOCKET"], ["1", "–", "QDISC_DROP"], ["1", "–", "–"]]
    assert isinstance(stacks, TextTable) and stacks.rows == [["7", "a < b"]]
    assert list(samples([])) == []


def test_samples_of_times_are_told_slowest_first_with_their_unit() -> None:
    _, kinds = samples([{"name": "wait", "waited_ns": one} for one in (1_500, 2_000_000, None)])
    assert isinstance(kinds, TextTable) and [row[-1] for row in kinds.rows] == ["2 ms", "1.50 us", "–"]
