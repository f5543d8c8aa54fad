"""A bridge of the kernel's Open vSwitch for the load of a calibration, without ovs-vswitchd.

The datapath is in the network namespace of the process, and ends with it (ovs_exit_net, net/openvswitch/datapath.c), as
do its own device, which is at the end that sends, and the veth pair to the other end. No ovs-vswitchd sees it: each
looks in its own namespace alone. What has no flow would need one to answer, so that upcalls come by a flow that asks
for them, to a netlink socket of this process that reads and forgets.
"""

import socket
import threading
from typing import Callable

from netconsole_collector.kernel.modules import is_loaded

BRIDGE, PORT, BEHIND = "nc-bridge", "nc-port", "nc-behind"
"""The datapath's own device, and the veth pair from it."""
LOCAL, OVER, UPCALLED, DROPPED = "198.18.0.1", "198.18.0.2", "198.18.0.3", "198.18.0.4"
"""The sender; who is behind the bridge; those whose packets come to an upcall, and are dropped (RFC 2544)."""
LOCAL_MAC, OVER_MAC = "02:00:00:00:00:04", "02:00:00:00:00:05"
_NETLINK_GENERIC = 16
_SO_RCVBUFFORCE, _BUFFER_BYTES = 33, 8 * 1024 * 1024


class LoadSwitch:
    """See the module. ``run(program, package, *words)`` runs a program; ``peer``: a process of the other namespace.

    Raises OSError, RuntimeError.
    """

    def __init__(self, run: Callable[..., None], peer: int) -> None:
        if not is_loaded("openvswitch"):
            raise RuntimeError("the kernel module openvswitch is not loaded")
        self._upcalls = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)
        self._upcalls.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._upcalls.bind((0, 0))
        threading.Thread(target=self._read, daemon=True).start()
        run("ip", "iproute2", "link", "add", PORT, "type", "veth", "peer", "name", BEHIND, "netns", str(peer))
        run("ip", "iproute2", "link", "set", PORT, "up")
        asked = "userspace(pid={})".format(self._upcalls.getsockname()[0])
        here, there, nowhere = 0, 1, ""  # the action drop is known only from Linux 6.7 on
        for words in (
            ("add-dp", BRIDGE),
            ("add-if", BRIDGE, PORT),
            ("add-flow", BRIDGE, _flow(here, OVER), str(there)),
            ("add-flow", BRIDGE, _flow(there, LOCAL), str(here)),
            ("add-flow", BRIDGE, _flow(here, UPCALLED), asked),
            ("add-flow", BRIDGE, _flow(here, DROPPED), nowhere),
        ):
            run("ovs-dpctl", "openvswitch-switch", *words)

    def _read(self) -> None:
        buffer = bytearray(65536)
        while True:
            try:
                self._upcalls.recv_into(buffer)
            except OSError:
                continue  # some were lost, as the kernel says once


def _flow(port: int, to: str) -> str:
    return "in_port({}),eth(),eth_type(0x0800),ipv4(dst={})".format(port, to)
