"""Reads what only ethtool knows of a device: driver, firmware, offloads, rings, channels, coalescing, link, RSS table.

pyroute2 makes the netlink and ioctl requests. The two that it lacks (driver information, RSS indirection) are here.
Their layouts are those of the kernel's include/uapi/linux/ethtool.h.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections import Counter

from pyroute2 import Ethtool
from pyroute2.ethtool.ioctl import EthtoolError, NoSuchDevice

from netconsole.base.fact_keys import key
from netconsole.sources.facts.reading import Facts, decoded, reason

_SIOCETHTOOL = 0x8946
_GDRVINFO = 0x00000003
_GRXFHINDIR = 0x00000038
_DRVINFO = struct.Struct("=I32s32s32s32s32s12sIIIII")
_IFREQ = struct.Struct("16sP16x")
_MAX_INDIRECTION = 4096

_RINGS = ("rx", "rx_max", "tx", "tx_max", "rx_buf_len", "tx_push", "rx_push")
_CHANNELS = ("combined_count", "max_combined", "rx_count", "max_rx", "tx_count", "max_tx")


class Device:
    """Makes ethtool requests for devices. Close it when done."""

    def __init__(self) -> None:
        self._ethtool = Ethtool()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def close(self) -> None:
        """Close the sockets."""
        self._socket.close()
        self._ethtool.close()

    def all(self, facts: Facts, name: str) -> None:
        """Add all facts of a physical device."""
        self.driver(facts, name)
        self.offloads(facts, name)
        self._ask(facts, name, "ring", "get_rings", _RINGS)
        self._ask(facts, name, "channels", "get_channels", _CHANNELS)
        self._coalescing(facts, name)
        self._ask(facts, name, "link", "get_link_mode", ("speed", "duplex", "autoneg"))
        self._indirection(facts, name)

    def driver(self, facts: Facts, name: str) -> None:
        """Add the driver, its version and that of the firmware."""
        source = "ethtool -i (ETHTOOL_GDRVINFO)"
        try:
            data = self._ioctl(name, struct.pack("=I", _GDRVINFO).ljust(_DRVINFO.size, b"\0"))
        except OSError as error:
            facts.unknown(key("nic", name, "driver"), source, reason(error))
            return
        _, driver, version, firmware, bus, *_rest = _DRVINFO.unpack(data)
        for fact, value in (
            ("driver", driver),
            ("driver_version", version),
            ("firmware", firmware),
            ("bus", bus),
        ):
            text = decoded(value.split(b"\0", 1)[0]).strip()
            if text and text != "N/A":
                facts.put(key("nic", name, fact), text, source)

    def offloads(self, facts: Facts, name: str, fixed: bool = True) -> None:
        """Add the features of ``ethtool -k``: on or off, and whether that is fixed. ``fixed``: include fixed ones."""
        source = "ethtool -k (ETHTOOL_GFEATURES)"
        try:
            features = self._ethtool.get_features(name).features
        except (EthtoolError, OSError) as error:
            facts.unknown(key("nic", name, "offload"), source, _why(error))
            return
        for feature in features.values():
            if not feature.name or (not feature.available and not fixed):
                continue
            value = ("on" if feature.enable else "off") + ("" if feature.available else " [fixed]")
            facts.put(key("nic", name, "offload", feature.name), value, source)

    def _ask(self, facts: Facts, name: str, area: str, question: str, fields: tuple[str, ...]) -> None:
        source = f"ethtool ({question.removeprefix('get_')})"
        try:
            answer = getattr(self._ethtool, question)(name)
        except (EthtoolError, OSError) as error:
            facts.unknown(key("nic", name, area), source, _why(error))
            return
        for field in fields:
            value = getattr(answer, field, None)
            if isinstance(value, (str, int, bool)):
                facts.put(key("nic", name, area, field), value, source)

    def _coalescing(self, facts: Facts, name: str) -> None:
        source = "ethtool -c (ETHTOOL_GCOALESCE)"
        try:
            answer = dict(self._ethtool.get_coalesce(name))
        except (EthtoolError, OSError) as error:
            facts.unknown(key("nic", name, "coalesce"), source, _why(error))
            return
        for field, value in answer.items():
            if field != "cmd" and isinstance(value, int):
                facts.put(key("nic", name, "coalesce", field), value, source)

    def _indirection(self, facts: Facts, name: str) -> None:
        """Add the RSS table as entries per queue, which shows whether it is even: ``0: 64, 1: 64``."""
        source = "ethtool -x (ETHTOOL_GRXFHINDIR)"
        fact = key("nic", name, "rss_indirection")
        try:
            size = struct.unpack_from("=II", self._ioctl(name, struct.pack("=II", _GRXFHINDIR, 0)))[1]
            if not 0 < size <= _MAX_INDIRECTION:
                facts.unknown(fact, source, f"a table of {size} entries")
                return
            request = struct.pack("=II", _GRXFHINDIR, size) + bytes(4 * size)
            queues = struct.unpack_from(f"={size}I", self._ioctl(name, request), 8)
        except OSError as error:
            facts.unknown(fact, source, reason(error))
            return
        share = sorted(Counter(queues).items())
        facts.put(fact, ", ".join(f"{queue}: {entries}" for queue, entries in share), source)

    def _ioctl(self, name: str, request: bytes) -> bytes:
        buffer = array.array("B", request)
        address, _ = buffer.buffer_info()
        fcntl.ioctl(self._socket, _SIOCETHTOOL, _IFREQ.pack(name.encode()[:15], address))
        return buffer.tobytes()


def _why(error: Exception) -> str:
    if isinstance(error, NoSuchDevice):
        return "the device is gone"
    return reason(error) if isinstance(error, OSError) else "the driver does not tell"
