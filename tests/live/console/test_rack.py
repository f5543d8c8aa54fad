"""Two hosts of a rack over a real sshd are measured, and a third that nobody answers for holds up neither."""

from __future__ import annotations

import contextlib

import pytest

from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.run.preflight import RunPlan
from netconsole.run.rack import Rack
from tests.support.live.ssh_server import NAME, SshServer
from tests.support.session_news import SessionNews

pytestmark = pytest.mark.starting

LIMIT_S = 60.0
PROBE = "kernel_drops"


def test_two_hosts_are_measured_beside_one_that_is_not_there(
    server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, server.environment[name])
    manifests = load_all()
    profile = load("summary", manifests)
    what = RunPlan(profile, manifests, plan(profile, manifests, [PROBE]), [PROBE])
    rack = Rack([f"ssh://{NAME}", f"ssh://root@{NAME}", f"ssh://{NAME}:9"], what)
    asked: list[str] = []
    with contextlib.closing(rack):
        rack.open(asked.append, LIMIT_S)
        assert [host.phase for host in rack.hosts] == ["measured", "measured", "refused"]
        assert "nothing answers at the host's ssh port" in rack.hosts[2].why and asked == []
        for host in rack.hosts[:2]:
            assert host.run is not None
            session = host.run.session
            SessionNews(session, LIMIT_S).until(lambda state: state.is_far and state.probes[PROBE].measuring)
            assert session.connection().line is not None
