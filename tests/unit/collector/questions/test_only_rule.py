"""Which rule is said to have dropped, when nothing is dropped any more: the only one that can have."""

from __future__ import annotations

import pytest

from netconsole_collector.primitives.legacy_firewall import LegacyRule
from netconsole_collector.questions.net import conntrack, firewall

FIRST, SECOND = LegacyRule("filter", "INPUT", 1), LegacyRule("filter", "INPUT", 2)


@pytest.mark.parametrize(
    ("first", "second", "hook", "found"),
    [
        (0, 3000, "input", SECOND),
        (0, 3000, "prerouting or input", SECOND),
        (0, 3000, "forward", None),  # it drops elsewhere
        (0, 3000, "None", None),
        (1, 3000, "input", None),  # which of them it was is not known
        (0, 0, "input", None),
    ],
)
def test_of_iptables_legacy_at_its_hook(first: int, second: int, hook: str, found: LegacyRule | None) -> None:
    assert conntrack.only_one({FIRST: first, SECOND: second}, hook) == found


@pytest.mark.parametrize(
    ("first", "second", "found"), [(0, 900, 1), (900, 0, 0), (1, 900, None), (0, 0, None)], ids=str
)
def test_of_nftables(first: int, second: int, found: int | None) -> None:
    rules = [firewall.CountedRule((1, "f", "in"), handle, True, (), False, packets)
             for handle, packets in enumerate((first, second))]  # fmt: skip
    assert firewall.only_one(rules) == (None if found is None else rules[found])


@pytest.mark.parametrize(
    ("or_rules", "refusal", "asked"),
    [("1", {}, True), (None, {}, False), ("1", {"full": True}, False), ("1", {"legacy_chain": "INPUT"}, False)],
)
def test_rules_of_nftables_are_looked_at_where_the_kernel_does_not_tell_them_apart(
    or_rules: str | None, refusal: dict[str, object], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"full": False, "no_port": False, "legacy_chain": None, **refusal}
    monkeypatch.setattr(conntrack, "within", lambda *_: dict(known))
    monkeypatch.setattr(firewall, "answer", lambda arguments: {"rule": f"of {arguments['hook']}", "rules": 1})
    found = conntrack.answer({"netns": "blue", "hook": "none", "or_rules": or_rules})
    assert found.get("rule") == ("of prerouting input forward output postrouting" if asked else None)


@pytest.mark.parametrize(("rules", "policies", "found"), [(0, 0, 2), (1, 0, None), (0, 1, None)])
def test_of_iptables_legacy_where_no_hook_is_known_and_nothing_of_nftables_drops(
    rules: int, policies: int, found: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conntrack, "_PAUSE_S", 0)
    monkeypatch.setattr(conntrack, "_counters", dict)
    monkeypatch.setattr(conntrack, "_dropped", lambda _: {FIRST: 0, SECOND: 3000})
    monkeypatch.setattr(conntrack, "within", lambda _arguments, make: make())
    monkeypatch.setattr(firewall, "answer", lambda _: {"rules": rules, "policies": policies})
    told = conntrack.answer({"netns": "blue", "hook": "none", "or_rules": "1"})
    assert told["legacy_rule"] == found
