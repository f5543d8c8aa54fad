"""The probes that there are: each is read when it is asked for, and a broken one is refused alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base.errors import BadInput
from netconsole.probes import catalogue
from netconsole.probes.catalogue import Catalogue, load_all, pick
from netconsole.probes.manifest import Manifest
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.run.preflight import RunPlan


@pytest.fixture
def mixed(tmp_path: Path) -> Catalogue:
    """One that is broken, beside a shipped one."""
    place = tmp_path / "family" / "broken"
    place.mkdir(parents=True)
    (place / "probe.toml").write_text("[probe]\nname = 7\n")
    shipped = load_all()["softnet"].directory
    (tmp_path / "family" / "softnet").symlink_to(shipped)
    return load_all([tmp_path])


def test_a_run_reads_the_manifests_of_its_profile_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read, whole = [], catalogue.load

    def reading(place: Path) -> Manifest:
        read.append(place.name)
        return whole(place)

    monkeypatch.setattr(catalogue, "load", reading)
    manifests = load_all()
    profile = load("minimal", manifests)
    watched = RunPlan(profile, manifests, plan(profile, manifests)).watched
    assert sorted(read) == list(watched) == sorted(profile.probes)
    assert set(manifests.names) > set(read)


def test_a_broken_probe_is_refused_with_its_mistakes_when_it_is_asked_for(mixed: Catalogue) -> None:
    assert mixed.names == ["broken", "softnet"]
    assert list(mixed) == ["softnet"] and len(mixed) == 1 and "broken" not in mixed
    with pytest.raises(BadInput, match="name: expected a text"):
        pick(mixed, "broken")
    with pytest.raises(BadInput, match="name: expected a text"):
        mixed.require_whole()
    assert list(mixed.broken) == ["broken"]
    assert pick(mixed, "softnet").name == "softnet"


def test_an_unknown_probe_is_told_with_what_is_close(mixed: Catalogue) -> None:
    assert mixed.require("softnett") is None
    with pytest.raises(BadInput, match='did you mean "softnet"'):
        pick(mixed, "softnett")
