"""Profiles: inheritance and knobs come out as documented, and every mistake of a file is in one report."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base import paths
from netconsole.base.errors import BadInput
from netconsole.cli.listing import profile_checked
from netconsole.probes import catalogue as probes
from netconsole.probes.catalogue import Catalogue
from netconsole.profile import loader
from netconsole.profile.origins import explain
from netconsole.profile.plan import plan
from netconsole.profile.profile import Profile
from netconsole_collector.probe.config import ROWS_ONE_IN, SEEN_PCT

BASE = """
[profile]
name = "base"
description = "The base."

[budget]
kernel_cpu_pct = 2.0
action = "degrade"

[filters]
device = "eth0"

[probes.kernel_drops]
mode = "details"
events_per_s = 50

[probes.socket_drops]
port = 53

[probes.link_rates]
"""


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return probes.load_all([paths.data("probes")])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "base.toml").write_text(BASE)
    return tmp_path


def load(directory: Path, catalogue: Catalogue, text: str, name: str = "mine") -> Profile:
    (directory / f"{name}.toml").write_text(text)
    return loader.load(name, catalogue, [directory])


def mistakes(directory: Path, catalogue: Catalogue, text: str) -> dict[str, str]:
    with pytest.raises(BadInput) as error:
        load(directory, catalogue, text)
    return {problem.key: problem.message for problem in error.value.problems}


def test_the_shipped_profiles_are_whole(catalogue: Catalogue) -> None:
    for name in ("summary", "drops"):
        profile = loader.load(name, catalogue, [paths.data("profiles")])
        assert profile.description
        assert plan(profile, catalogue)
    summary = loader.load("summary", catalogue, [paths.data("profiles")])
    assert all(choice.mode == "summary" for choice in summary.probes.values())
    drops = loader.load("drops", catalogue, [paths.data("profiles")])
    assert drops.probes["kernel_drops"].mode == "details"


def test_a_profile_takes_over_what_it_inherits_and_changes_what_it_says(directory: Path, catalogue: Catalogue) -> None:
    profile = load(
        directory,
        catalogue,
        """
        [profile]
        inherits = "base"
        ttl = "5m"
        [budget]
        kernel_cpu_pct = 1
        [filters]
        protocol = "udp"
        [probes.kernel_drops]
        port = 4789
        [probes.link_rates]
        mode = "off"
        """,
    )
    assert (profile.name, profile.inherits, profile.ttl_s) == ("mine", ("base",), 300.0)
    assert (profile.budget.kernel_cpu_pct, profile.budget.action) == (1, "degrade")
    assert profile.filters == {"device": "eth0", "protocol": "udp"}
    drops = profile.probes["kernel_drops"]
    assert (drops.mode, drops.knobs) == ("details", {"events_per_s": 50, "port": 4789})
    assert profile.probes["link_rates"].mode == "off"
    requests = {request.name: request for request in plan(profile, catalogue)}
    assert "link_rates" not in requests
    # A filter reaches the probes that have such a knob, and no others.
    assert requests["kernel_drops"].knobs["device"] == "eth0"
    assert requests["kernel_drops"].knobs["port"] == 4789
    assert "device" not in requests["socket_drops"].knobs
    assert requests["socket_drops"].knobs["protocol"] == "udp"
    assert requests["kernel_drops"].mode == "details"


def test_every_value_is_told_with_its_origin(directory: Path, catalogue: Catalogue) -> None:
    text = """
        [profile]
        inherits = "base"
        [budget]
        memory_mb = 50
        [probes.kernel_drops]
        port = 4789
        [probes.link_rates]
        mode = "off"
        """
    profile = load(directory, catalogue, text)
    told = {(one.section, one.key): (one.value, one.origin) for one in explain(profile, catalogue)}
    assert told["budget", "memory_mb"] == (50, "this file")
    assert told["budget", "kernel_cpu_pct"] == (2.0, "inherited from base")
    assert told["budget", "ns_per_packet"] == (None, "default")
    assert told["probes.kernel_drops", "port"] == (4789, "this file")
    assert told["probes.kernel_drops", "events_per_s"] == (50, "inherited from base")
    assert told["probes.kernel_drops", "device"] == ("eth0", "filter, inherited from base")
    assert told["probes.kernel_drops", "rows_per_s"] == (0, "default of the probe")
    assert told["probes.link_rates", "mode"] == ("off", "this file")
    knobs = {knob for section, knob in told if section == "probes.kernel_drops"}
    assert knobs >= set(catalogue["kernel_drops"].knobs), "every value that holds"
    assert "kernel_cpu_pct = 2.0               # inherited from base; percent of" in profile_checked(profile, catalogue)


@pytest.mark.parametrize("name", ["summary", "details", "drops", "vhost", "ovs", "latency", "minimal"])
def test_each_shipped_profile_has_a_whole_budget_that_is_kept(name: str, catalogue: Catalogue) -> None:
    profile = loader.load(name, catalogue, [paths.data("profiles")])
    assert None not in profile.budget.as_dict().values()
    assert profile.budget.action == "degrade"
    details = [probe for probe, choice in profile.probes.items() if choice.mode == "details"]
    assert sum(int(str(profile.probes[probe].knobs["events_per_s"])) for probe in details) <= (
        profile.budget.events_per_s or 0
    )


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("[profil]\n", "profil", "unknown section"),
        ('[profile]\nname = "other"', "profile.name", '"mine"'),
        ('[profile]\nnmae = "mine"', "profile.nmae", 'did you mean "name"?'),
        ('[profile]\ninherits = "bsae"', "profile.inherits", 'did you mean "base"?'),
        ('[profile]\ninherits = "mine"', "profile.inherits", "cannot inherit from itself"),
        ('[profile]\nttl = "5m"', "profile.ttl", "contradicts the absence of inherits"),
        ('[profile]\ninherits = "base"\nttl = "5"', "profile.ttl", '"5m"'),
        ('[profile]\nkeep = "kernel_drops"', "profile.keep", "a list of texts"),
        ('[profile]\ninherits = "base"\nkeep = ["kernel_dorps"]', "profile.keep", 'did you mean "kernel_drops"?'),
        ('[profile]\nkeep = ["kernel_drops"]', "profile.keep", "kernel_drops does not run in this profile"),
        ('[profile]\ninherits = "base"\nkeep = ["link_rates"]', "profile.keep", "costs nothing in the kernel"),
        ("[profile]\ndescription = 5", "profile.description", "text in quotes"),
        ("[profile]\ninherits = 7", "profile.inherits", "text in quotes"),
        ("[budget]\nkernel_cpu_pct = -1", "budget.kernel_cpu_pct", "percent of one core"),
        ('[budget]\nkernel_cpu_pct = "2 %"', "budget.kernel_cpu_pct", "the unit is in the key's name"),
        ("[budget]\nkernel_cpu_pct = true", "budget.kernel_cpu_pct", "number"),
        ("[budget]\nmemory_kb = 100", "budget.memory_kb", "unknown key"),
        ('[budget]\naction = "panic"', "budget.action", "degrade, warn, stop"),
        ("[filters]\ndevice = 5", "filters.device", "interface"),
        ('[filters]\ndevice = "0123456789abcdef"', "filters.device", "15 bytes"),
        ('[filters]\naddress = "10.0.0.0/33"', "filters.address", "prefix"),
        ('[filters]\naddress = "fe80::1%eth0"', "filters.address", "prefix"),
        ('[filters]\nprotocol = "icmp"\nport = 53', "filters.port", "has no ports"),
        ('[filters]\nprotocol = "icmpv6"\naddress = "10.0.0.1"', "filters.address", "IPv4"),
        ("[filters]\nthreshold_us = 1", "filters.threshold_us", "unknown key"),
        ("[probes.kernel_dorps]", "probes.kernel_dorps", 'did you mean "kernel_drops"?'),
        ('[probes.kernel_drops]\nmode = "detail"', "probes.kernel_drops.mode", 'did you mean "details"?'),
        ('[probes.link_rates]\nmode = "details"', "probes.link_rates.mode", "no mode details; its modes are summary"),
        ('[probes.kernel_drops]\nmode = "off"\nport = 53', "probes.kernel_drops.port", "contradicts mode"),
        ('[probes.self_cost]\nmode = "off"\npin = true', "probes.self_cost.pin", "contradicts mode"),
        ('[probes.softirq_health]\nmode = "off"\nkernel_cpu_pct = 1', "probes.softirq_health.kernel_cpu_pct", "mode"),
        ("[probes.softirq_health]\nkernel_cpu_pct = 0", "probes.softirq_health.kernel_cpu_pct", "0.01 to 100000"),
        ("[probes.softnet]\nkernel_cpu_pct = 1", "probes.softnet.kernel_cpu_pct", "for a share of the time"),
        ("[probes.kernel_drops]\nport = 65536", "probes.kernel_drops.port", "0 to 65535"),
        ('[probes.kernel_drops]\nport = "53"', "probes.kernel_drops.port", 'found "53"'),
        ("[probes.kernel_drops]\nprotocol = 256", "probes.kernel_drops.protocol", "0 to 255"),
        ("[probes.tx_queue_latency]\nthreshold_ms = 1", "probes.tx_queue_latency.threshold_ms", '"threshold_us"'),
        ("[probes]\nkernel_drops = 3", "probes.kernel_drops", "expected a table"),
        ("probes = 3", "probes", "expected a table"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_the_expected_form(
    directory: Path, catalogue: Catalogue, text: str, key: str, said: str
) -> None:
    assert said in mistakes(directory, catalogue, text)[key]


def test_all_mistakes_are_reported_at_once(directory: Path, catalogue: Catalogue) -> None:
    """One of every kind: what is unknown, of the wrong type, out of its range, missing, or a contradiction."""
    found = mistakes(
        directory,
        catalogue,
        """
        [profile]
        nmae = "mine"
        name = "another"
        inherits = "sumary"
        ttl = "10 parsecs"
        [budget]
        action = "panic"
        kernel_cpu_pct = -3
        ns_per_packet = "fast"
        user_cpu_pct = nan
        events_per_s = true
        [filters]
        device = "longer-than-a-name-may-be"
        address = "300.1.2.3"
        protocol = "icmp"
        port = 53
        [probes.kernel_drops]
        mode = "detials"
        pin = "yes"
        port = -1
        [probes.tx_queue_latency]
        mode = "off"
        threshold_us = 500
        [probes.nothing]
        [[escalate]]
        probe = "nothing"
        for = "9999h"
        [[escalate]]
        probe = "kernel_drops"
        table = "drops"
        value = "count"
        over = "much"
        where = { colour = "red" }
        [elsewhere]
        """,
    )
    assert set(found) == {
        *("profile.nmae", "profile.name", "profile.inherits", "profile.ttl"),
        *(f"budget.{name}" for name in ("action", "kernel_cpu_pct", "ns_per_packet", "user_cpu_pct", "events_per_s")),
        *("filters.device", "filters.address", "filters.port"),
        *(f"probes.kernel_drops.{name}" for name in ("mode", "pin", "port")),
        *("probes.tx_queue_latency.threshold_us", "probes.nothing"),
        *("escalate[0].probe", "escalate[0].for", "escalate[0].over"),
        *("escalate[1].over", "escalate[1].where.colour", "elsewhere"),
    }


def test_the_mistakes_of_an_inherited_profile_are_reported_with_its_file(directory: Path, catalogue: Catalogue) -> None:
    (directory / "bad.toml").write_text("[budget]\naction = 1\n")
    with pytest.raises(BadInput, match=r"bad\.toml: budget\.action"):
        load(directory, catalogue, '[profile]\ninherits = "bad"\n')


def test_profiles_that_inherit_in_a_circle_are_refused(directory: Path, catalogue: Catalogue) -> None:
    (directory / "a.toml").write_text('[profile]\ninherits = "b"\n')
    (directory / "b.toml").write_text('[profile]\ninherits = "a"\n')
    with pytest.raises(BadInput, match="cannot inherit from itself"):
        loader.load("a", catalogue, [directory])


def test_a_users_profile_may_refine_the_shipped_one_of_its_name(tmp_path: Path, catalogue: Catalogue) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / "summary.toml").write_text('[profile]\ninherits = "minimal"\n[probes.softnet]\nmode = "off"\n')
    profile = loader.load("summary", catalogue, [user, paths.data("profiles")])
    assert profile.path == user / "summary.toml"
    assert profile.probes["kernel_drops"].mode == "counters"


@pytest.mark.parametrize("content", [b"\xff" * 1024 * 1024, b"\x00\x1b[31m", b"[", b"x = " + b"[" * 50_000])
def test_garbage_is_one_printable_line(tmp_path: Path, catalogue: Catalogue, content: bytes) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput) as error:
        loader.load(str(path), catalogue)
    assert str(error.value).isprintable()
    assert str(path) in str(error.value)


def test_a_directory_a_pipe_or_nothing_is_no_profile(tmp_path: Path, catalogue: Catalogue) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path, tmp_path / "pipe.toml", tmp_path / "missing.toml", Path("/dev/zero")):
        with pytest.raises(BadInput):
            loader.load(f"{path.parent}/{path.name}", catalogue)


def test_the_example_of_the_page_is_a_profile(tmp_path: Path, catalogue: Catalogue) -> None:
    page = (Path(__file__).parents[3] / "docs" / "use" / "profiles.md").read_text()
    (tmp_path / "dns.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    profile = loader.load("dns", catalogue, [tmp_path, paths.data("profiles")])
    assert (profile.inherits, profile.ttl_s) == (("summary",), 600.0)
    # Every key that a budget knows is explained.
    assert None not in profile.budget.as_dict().values()
    requests = {request.name: request for request in plan(profile, catalogue)}
    assert requests["socket_drops"].knobs["port"] == 53
    assert requests["tx_queue_latency"].knobs["device"] == "eth0"


def test_what_a_profile_is_for_is_inherited_but_for_what_it_switches_off(directory: Path, catalogue: Catalogue) -> None:
    head = '[profile]\ninherits = "{}"\n'
    both = load(directory, catalogue, head.format("base") + 'keep = ["kernel_drops", "socket_drops"]\n', "both")
    assert both.keep == ("kernel_drops", "socket_drops")
    assert load(directory, catalogue, head.format("both"), "same").keep == both.keep
    without = head.format("both") + '[probes.socket_drops]\nmode = "off"\n'
    assert load(directory, catalogue, without, "without").keep == ("kernel_drops",)
    assert load(directory, catalogue, head.format("both") + "keep = []\n", "none").keep == ()


@pytest.mark.parametrize("name", loader.available([paths.data("profiles")]))
def test_what_a_shipped_profile_keeps_has_something_to_give_up_before_its_rows(name: str, catalogue: Catalogue) -> None:
    """So that it survives a storm: rows of one count in so many, or a share of the time."""
    for probe in loader.load(name, catalogue, [paths.data("profiles")]).keep:
        assert {ROWS_ONE_IN, SEEN_PCT} & catalogue[probe].knobs.keys(), probe


@pytest.mark.parametrize("name", loader.available([paths.data("profiles")]))
def test_a_shipped_budget_allows_a_million_counts_a_second_of_what_it_keeps(name: str, catalogue: Catalogue) -> None:
    """185 ns each, as the governor measures them (docs/design/governor.md)."""
    profile = loader.load(name, catalogue, [paths.data("profiles")])
    assert profile.keep and (profile.budget.kernel_cpu_pct or 0) >= 1e6 * 185e-9 * 100
