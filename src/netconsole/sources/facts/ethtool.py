"""Reads what only ethtool knows of a device: driver, firmware, offloads, rings, channels, coalescing, link, RSS table.

Requests go through the target. pyroute2's structures decode the answers, but for the simple ones, whose layouts are
those of the kernel's include/uapi/linux/ethtool.h.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from pyroute2.ethtool import ioctl
from pyroute2.ethtool.ethtool import EthtoolChannels, EthtoolCoalesce, EthtoolLinkMode, EthtoolRings
from pyroute2.netlink.generic.ethtool import ETHTOOL_MSG_RINGS_GET, ethtool_rings_msg

from netconsole.base.fact_keys import key
from netconsole.host.target import NetlinkSocket, Question, Target
from netconsole.sources.facts.reading import Facts, decoded, reason
from netconsole_collector.sources.netlink_messages import NETLINK_GENERIC, attribute, families, whole

_GDRVINFO = 0x00000003
_GRXFHINDIR = 0x00000038
_DRVINFO = struct.Struct("=I32s32s32s32s32s12sIIIII")
_SSET_INFO = struct.Struct("=IIQI")
_STRINGS = struct.Struct("=III")
_STRING_BYTES = 32
_MAX_STRINGS = 256
_INDIRECTION = struct.Struct("=II")
_MAX_INDIRECTION = 4096
_GENERIC = struct.Struct("=BBxx")
_RINGS_HEADER, _HEADER_NAME = 1, 2
"""ETHTOOL_A_RINGS_HEADER, ETHTOOL_A_HEADER_DEV_NAME (ethtool_netlink.h)."""

_RINGS = ("rx", "rx_max", "tx", "tx_max", "rx_buf_len", "tx_push", "rx_push")
_CHANNELS = ("combined_count", "max_combined", "rx_count", "max_rx", "tx_count", "max_tx")
_LINK = ("speed", "duplex", "autoneg")

_FIRST = (
    struct.pack("=I", _GDRVINFO).ljust(_DRVINFO.size, b"\0"),
    ioctl.EthtoolChannels(cmd=ioctl.ETHTOOL_GCHANNELS),
    ioctl.IoctlEthtoolLinkSettings(cmd=ioctl.ETHTOOL_GLINKSETTINGS),
    ioctl.EthtoolCoalesce(cmd=ioctl.ETHTOOL_GCOALESCE),
    _INDIRECTION.pack(_GRXFHINDIR, 0),
)
"""What every physical device is asked for."""

Structure = TypeVar("Structure", bound=ctypes.Structure)


class Device:
    """Makes ethtool requests for devices. Close it when done."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._features: list[str] | None = None
        self._netlink: NetlinkSocket | None = None
        self._family: int | None = None

    def close(self) -> None:
        """Close the socket."""
        if self._netlink is not None:
            self._netlink.close()

    def ahead(self, names: Iterable[str]) -> None:
        """The offloads of these devices will be asked for."""
        blocks = -(-len(self._feature_names(next(iter(names), "lo"))) // 32)
        request = bytes(ioctl.EthtoolGfeatures(cmd=ioctl.ETHTOOL_GFEATURES, size=blocks))
        self._target.ahead(Question("ethtool", (name, request)) for name in names)

    def all(self, facts: Facts, name: str) -> None:
        """Add all facts of a physical device."""
        self._target.ahead(Question("ethtool", (name, bytes(request))) for request in _FIRST)
        self.driver(facts, name)
        self.offloads(facts, name)
        self._rings(facts, name)
        self._channels(facts, name)
        self._coalescing(facts, name)
        self._link(facts, name)
        self._indirection(facts, name)

    def driver(self, facts: Facts, name: str) -> None:
        """Add the driver, its version and that of the firmware."""
        source = "ethtool -i (ETHTOOL_GDRVINFO)"
        try:
            data = self._target.ethtool(name, struct.pack("=I", _GDRVINFO).ljust(_DRVINFO.size, b"\0"))
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
            names = self._feature_names(name)
            features = self._ask(name, ioctl.EthtoolGfeatures(cmd=ioctl.ETHTOOL_GFEATURES, size=-(-len(names) // 32)))
        except OSError as error:
            facts.unknown(key("nic", name, "offload"), source, _why(error))
            return
        for number, feature in enumerate(names):
            block, bit = features.features[number // 32], 1 << number % 32
            if not feature or (not block.available & bit and not fixed):
                continue
            value = ("on" if block.active & bit else "off") + ("" if block.available & bit else " [fixed]")
            facts.put(key("nic", name, "offload", feature), value, source)

    def _rings(self, facts: Facts, name: str) -> None:
        source = "ethtool (rings)"
        try:
            answer = self._rings_by_netlink(name)
            if answer is None:
                answer = EthtoolRings.from_ioctl(self._ask(name, ioctl.EthtoolRingParam(cmd=ioctl.ETHTOOL_GRINGPARAM)))
        except OSError as error:
            facts.unknown(key("nic", name, "ring"), source, _why(error))
            return
        _put(facts, name, "ring", answer._asdict(), _RINGS, source)

    def _rings_by_netlink(self, name: str) -> EthtoolRings | None:
        """Since 5.6. It knows more than the ioctl. None where the driver or the kernel does not answer."""
        try:
            if self._netlink is None:
                self._netlink = self._target.netlink(NETLINK_GENERIC)
                self._family = families(self._netlink).get("ethtool")
            if self._family is None:
                return None
            header = attribute(_RINGS_HEADER, attribute(_HEADER_NAME, name.encode() + b"\0"), is_nested=True)
            body = self._netlink.ask(self._family, _GENERIC.pack(ETHTOOL_MSG_RINGS_GET, 1) + header)
        except OSError:
            return None
        message = ethtool_rings_msg(whole(self._family, body))
        message.decode()
        return EthtoolRings.from_netlink([message])

    def _channels(self, facts: Facts, name: str) -> None:
        source = "ethtool (channels)"
        try:
            answer = EthtoolChannels.from_ioctl(self._ask(name, ioctl.EthtoolChannels(cmd=ioctl.ETHTOOL_GCHANNELS)))
        except OSError as error:
            facts.unknown(key("nic", name, "channels"), source, _why(error))
            return
        _put(facts, name, "channels", answer._asdict(), _CHANNELS, source)

    def _link(self, facts: Facts, name: str) -> None:
        source = "ethtool (link_mode)"
        try:
            # The kernel first answers how many words its masks have, as a negative number.
            settings = ioctl.IoctlEthtoolLinkSettings(cmd=ioctl.ETHTOOL_GLINKSETTINGS)
            settings = self._ask(name, settings)
            settings.link_mode_masks_nwords = -settings.link_mode_masks_nwords
            settings = self._ask(name, settings)
            if settings.link_mode_masks_nwords <= 0:
                raise OSError(errno.EOPNOTSUPP, "")
        except OSError as error:
            facts.unknown(key("nic", name, "link"), source, _why(error))
            return
        _put(facts, name, "link", EthtoolLinkMode.from_ioctl(settings)._asdict(), _LINK, source)

    def _coalescing(self, facts: Facts, name: str) -> None:
        source = "ethtool -c (ETHTOOL_GCOALESCE)"
        try:
            answer = EthtoolCoalesce.from_ioctl(self._ask(name, ioctl.EthtoolCoalesce(cmd=ioctl.ETHTOOL_GCOALESCE)))
        except OSError as error:
            facts.unknown(key("nic", name, "coalesce"), source, _why(error))
            return
        _put(facts, name, "coalesce", answer, [field for field in answer if field != "cmd"], source)

    def _indirection(self, facts: Facts, name: str) -> None:
        """Add the RSS table as entries per queue, which shows whether it is even: ``0: 64, 1: 64``."""
        source = "ethtool -x (ETHTOOL_GRXFHINDIR)"
        fact = key("nic", name, "rss_indirection")
        try:
            size = _INDIRECTION.unpack(self._target.ethtool(name, _INDIRECTION.pack(_GRXFHINDIR, 0)))[1]
            if not 0 < size <= _MAX_INDIRECTION:
                facts.unknown(fact, source, f"a table of {size} entries")
                return
            request = _INDIRECTION.pack(_GRXFHINDIR, size) + bytes(4 * size)
            queues = struct.unpack_from(f"={size}I", self._target.ethtool(name, request), _INDIRECTION.size)
        except OSError as error:
            facts.unknown(fact, source, reason(error))
            return
        share = sorted(Counter(queues).items())
        facts.put(fact, ", ".join(f"{queue}: {entries}" for queue, entries in share), source)

    def _feature_names(self, device: str) -> list[str]:
        """The names of all features, by their bits; the same for every device. Raises OSError."""
        if self._features is None:
            number = ioctl.ETH_SS_FEATURES
            asked = _SSET_INFO.pack(ioctl.ETHTOOL_GSSET_INFO, 0, 1 << number, 0)
            count = min(_SSET_INFO.unpack(self._target.ethtool(device, asked))[3], _MAX_STRINGS)
            asked = _STRINGS.pack(ioctl.ETHTOOL_GSTRINGS, number, count) + bytes(count * _STRING_BYTES)
            text = self._target.ethtool(device, asked)[_STRINGS.size :]
            strings = (text[at : at + _STRING_BYTES] for at in range(0, count * _STRING_BYTES, _STRING_BYTES))
            self._features = [decoded(string.split(b"\0", 1)[0]) for string in strings]
        return self._features

    def _ask(self, name: str, request: Structure) -> Structure:
        data = self._target.ethtool(name, bytes(request))
        answer = type(request)()  # not from_buffer_copy: pyroute2's structures list their fields when they are made
        ctypes.memmove(ctypes.byref(answer), data, min(len(data), ctypes.sizeof(answer)))
        return answer


def _put(facts: Facts, name: str, area: str, values: Mapping[str, object], fields: Iterable[str], source: str) -> None:
    for field in fields:
        value = values.get(field)
        if isinstance(value, (str, int, bool)):
            facts.put(key("nic", name, area, field), value, source)


def _why(error: OSError) -> str:
    if error.errno == errno.ENODEV:
        return "the device is gone"
    return "the driver does not tell this" if error.errno == errno.EOPNOTSUPP else reason(error)
