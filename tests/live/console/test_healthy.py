"""A healthy mix is silent, and a small loss within it is not: one in a hundred, one in two hundred, five a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from netconsole.findings.incident import Incident
from tests.live.console.test_faults import Watch
from tests.support.live.healthy import HealthyMix

pytestmark = pytest.mark.costs  # its senders keep a pace, and need the machine for themselves

SECONDS = 40
PATHS = ("wire", "bridge", "router")
LOSSES = {
    "one in a hundred": "numgen inc mod 100 0 drop",
    "one in two hundred": "numgen inc mod 200 0 drop",
    "five a second": "limit rate 5/second burst 1 packets drop",
}


class Played:
    """A mix, and whose incidents are its."""

    def __init__(self, stack: ExitStack, rule: str = "", path: str = "wire") -> None:
        self.mix = HealthyMix(stack, path=path)
        if rule:
            self.mix.b.run("nft", "add table inet f; add chain inet f in { type filter hook input priority 0; }")
            self.mix.b.run("nft", f"add rule inet f in meta l4proto udp {rule}")

    def is_of(self, incident: Incident) -> bool:
        labels = [dict(evidence.key).get("netns") for evidence in incident.evidence]
        return self.mix.is_of([*labels, incident.where.get("netns")])


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, list[str]]]:
    """The causes of all incidents, by what is lost, or by the path of a mix in which nothing is."""
    with ExitStack() as stack:
        watch = Watch()
        stack.callback(watch.close)
        played = {path: Played(stack, path=path) for path in PATHS}
        played |= {name: Played(stack, rule) for name, rule in LOSSES.items()}
        assert watch.until(watch.settled)
        end = watch.intervals + SECONDS
        assert watch.until(lambda: watch.intervals >= end)
        yield {
            name: [f"{incident.cause}: {incident.sentence}" for incident in watch.of(one) if not incident.is_ours]
            for name, one in played.items()
        }


@pytest.mark.parametrize("path", PATHS)
def test_nothing_of_a_healthy_mix_is_a_fault(path: str, found: dict[str, list[str]]) -> None:
    assert found[path] == []


@pytest.mark.parametrize("loss", LOSSES)
def test_a_small_loss_is_found_in_it(loss: str, found: dict[str, list[str]]) -> None:
    """Of its datagrams, beside all else: a lost request for a connection would hold up the mix."""
    assert [one.partition(":")[0] for one in found[loss]] == ["firewall-drops"], found[loss]
