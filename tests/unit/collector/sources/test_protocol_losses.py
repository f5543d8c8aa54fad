"""Every counter of a protocol that means a loss has words and a line of its own, and is provoked or says why not."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from netconsole.findings.drop_places import CountedRow, drop_places
from netconsole.findings.windows import Family
from netconsole.probes.catalogue import shipped
from netconsole_collector.sources.net.protocol_losses import MEANINGS, UNANSWERED
from tests.support.counter_names import KNOWN, TABLE

TESTS = Path(__file__).parents[3]
SOUNDS_LIKE_A_LOSS = re.compile(
    r"err|drop|discard|fail|overflow|noroute|noport|prune|timeout|limit|reject|block|mismatch|bad|unexpected|notfound"
    r"|toobig|filter|beyond|unknown|expired|nostates|nopols|trunc|overlap|full|corrupt|notoken|blackhole",
    re.IGNORECASE,
)
MOST_NOT_YET = 0
"""How many counters may wait for a test that provokes them. It only goes down."""


def test_each_counter_is_provoked_or_says_why_not() -> None:
    said = [name for part in ("provoked", "not_yet", "cannot") for names in TABLE[part].values() for name in names]
    assert not [name for name, times in Counter(said).items() if times > 1]
    assert set(said) == MEANINGS.keys()
    assert sum(map(len, TABLE["not_yet"].values())) <= MOST_NOT_YET


@pytest.mark.parametrize("file", TABLE["provoked"])
def test_what_is_said_to_be_provoked_is_named_by_that_test(file: str) -> None:
    text = (TESTS / file).read_text()
    assert not [name for name in TABLE["provoked"][file] if f'"{name}"' not in text]


def test_no_counter_of_the_kernel_that_sounds_like_a_loss_is_forgotten() -> None:
    known = MEANINGS.keys() | set(TABLE["kernel"]["plain"])
    assert len(KNOWN) > 400
    assert not [name for name in KNOWN if SOUNDS_LIKE_A_LOSS.search(name) and name not in known]
    assert not MEANINGS.keys() - UNANSWERED.keys() - set(KNOWN), "it is made up"
    assert {name for pair in UNANSWERED.values() for name in pair} <= set(KNOWN)


@pytest.mark.parametrize("name", [name for name, (kind, _) in MEANINGS.items() if kind == "loss"])
def test_each_loss_is_a_line_of_the_ranked_list(name: str) -> None:
    labels = {"counter": name, "class": "loss", "netns": "blue", "meaning": MEANINGS[name][1]}
    row = CountedRow(Family("protocol_counters", "counters", "count"), tuple(labels.items()), labels, 5, 1.0, False)
    (place,) = drop_places([row], {"protocol_counters": shipped("protocol_counters")})
    assert (place.at, place.say, place.total) == (f"{name} (netns blue)", MEANINGS[name][1], 5)
