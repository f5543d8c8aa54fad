"""What decodes messages of tc does not bring the rest of pyroute2 with it, and leaves that to be imported."""

from __future__ import annotations

import subprocess
import sys


def test_only_what_decodes_is_imported_and_the_rest_can_be() -> None:
    code = (
        "import sys; from netconsole.sources.tc_message import tcmsg; print(*sys.modules);"
        "import pyroute2; from pyroute2.netlink.rtnl.tcmsg import tcmsg as same;"
        "assert pyroute2.IPRoute and same is tcmsg"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "pyroute2.netlink.rtnl.tcmsg.sched_htb" in modules
    assert not {"asyncio", "pyroute2", "pyroute2.ndb.main", "pyroute2.iproute"} & modules
