"""No pane judges: the state of a row is that of its worst finding, whose limits are data in manifests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.findings.matches import JUDGES
from netconsole.probes import catalogue, manifest
from netconsole.probes.manifest import FindingSpec

ROOT = Path(__file__).parents[3]
PANES = sorted((ROOT / "src/netconsole/tui/panes").rglob("*.py"))
OF_DRAWING = {
    "0", "1", "0.1", "0.01", "99", "100", "MOST", "TOP", "STACKED", "PAIRED_COLUMNS", "TOTAL_COLUMNS",
    "_LATE_NS", "STARTING_INTERVALS", "MIN_PACKETS_PER_S",
}  # fmt: skip
"""With what panes compare sizes: how a figure is rounded, how much is drawn, whether a figure is known already."""
ORDERED = (ast.Lt, ast.Gt, ast.LtE, ast.GtE)
WITH_STATES = {
    "vhost_queues": ("queues", "workers"), "tun_queues": ("queues",), "irq_path": ("stages",),
    "ovs_flows": ("datapaths", "vswitchd"), "ovs_upcalls": ("upcalls", "failures", "latency"),
}  # fmt: skip
"""Tables and histograms whose rows have a state in a word."""


def compared(tree: ast.AST) -> Iterator[str]:
    """The numbers and constants with which something is compared by its size."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            isinstance(one, (ast.Lt, ast.Gt, ast.LtE, ast.GtE)) for one in node.ops
        ):
            for side in (node.left, *node.comparators):
                if isinstance(side, ast.Constant):
                    yield repr(side.value)
                elif isinstance(side, ast.Name) and side.id.isupper():
                    yield side.id


def test_no_pane_names_a_limit() -> None:
    for path in PANES:
        assert set(compared(ast.parse(path.read_text()))) <= OF_DRAWING, path


def test_each_judge_that_a_manifest_may_name_is_there() -> None:
    assert set(JUDGES) == set(manifest.JUDGES)


def rules() -> list[FindingSpec]:
    return [
        rule
        for probe, names in WITH_STATES.items()
        for rule in catalogue.shipped(probe).findings
        if rule.table in names
    ]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: f"{rule.table}-{rule.value or rule.percentile}-{rule.state}")
def test_each_finding_has_a_word_for_the_state_of_its_row(rule: FindingSpec) -> None:
    assert bool(rule.state and rule.means) != bool(rule.judge)


def test_the_pages_of_both_subjects_have_the_words() -> None:
    pages = "".join((ROOT / "docs/subjects" / name).read_text() for name in ("vhost.md", "ovs.md"))
    assert not {rule.state for rule in rules() if rule.state and f"`{rule.state}`" not in pages}
