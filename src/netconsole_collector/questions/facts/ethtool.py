"""Reads what only ethtool knows of a device: driver, firmware, offloads, rings, channels, coalescing, link, RSS.

Layouts: include/uapi/linux/ethtool.h, ethtool_netlink.h.
"""

import errno
import struct
import sys
from collections import Counter
from typing import Dict, Iterable, List, Mapping, Optional, Sequence

from netconsole_collector.names.fact_keys import key
from netconsole_collector.primitives.here import Here
from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.questions.facts.reading import Facts, decoded, reason
from netconsole_collector.sources.net.netlink_messages import NETLINK_GENERIC, attribute, families

_GDRVINFO = 0x00000003
_GRXFH, _GCOALESCE, _GRINGPARAM, _GSTRINGS, _GSSET_INFO, _GRXFHINDIR = 0x29, 0x0E, 0x10, 0x1B, 0x37, 0x38
_GFEATURES, _GCHANNELS, _GLINKSETTINGS = 0x3A, 0x3C, 0x4C
_SS_FEATURES = 4
_DRVINFO = struct.Struct("=I32s32s32s32s32s12sIIIII")
_SSET_INFO = struct.Struct("=IIQI")
_STRINGS = struct.Struct("=III")
_STRING_BYTES = 32
_MAX_STRINGS = 256
_INDIRECTION = struct.Struct("=II")
_MAX_INDIRECTION = 4096
_RXNFC, _RXNFC_BYTES = struct.Struct("=IIQ"), 192
"""Of struct ethtool_rxnfc: command, kind of flow, and the fields by which it is spread."""
_FLOWS = {"tcp4": 1, "udp4": 2, "tcp6": 5, "udp6": 6}
_FIELDS = {"m": 1 << 1, "v": 1 << 2, "t": 1 << 3, "s": 1 << 4, "d": 1 << 5, "f": 1 << 6, "n": 1 << 7}
"""RXH_L2DA …, by the letters of ``ethtool -N``: s and d are the addresses, f and n the ports."""
_GENERIC = struct.Struct("=BBxx")
_RINGS_HEADER, _HEADER_NAME = 1, 2
"""ETHTOOL_A_RINGS_HEADER, ETHTOOL_A_HEADER_DEV_NAME (ethtool_netlink.h)."""

_MSG_RINGS_GET = 15
_RINGS_BY_NETLINK = {"rx_max": 2, "tx_max": 5, "rx": 6, "tx": 9, "rx_buf_len": 10, "tx_push": 13, "rx_push": 14}
_RINGS_LAYOUT = ("rx_max", "rx_mini_max", "rx_jumbo_max", "tx_max", "rx", "rx_mini", "rx_jumbo", "tx")
_RINGS = ("rx", "rx_max", "tx", "tx_max", "rx_buf_len", "tx_push", "rx_push")
_CHANNELS_LAYOUT = (
    *("max_rx", "max_tx", "max_other", "max_combined"),
    *("rx_count", "tx_count", "other_count", "combined_count"),
)
_CHANNELS = ("combined_count", "max_combined", "rx_count", "max_rx", "tx_count", "max_tx")
_COALESCE_LAYOUT = (
    "rx_coalesce_usecs", "rx_max_coalesced_frames", "rx_coalesce_usecs_irq", "rx_max_coalesced_frames_irq",
    "tx_coalesce_usecs", "tx_max_coalesced_frames", "tx_coalesce_usecs_irq", "tx_max_coalesced_frames_irq",
    "stats_block_coalesce_usecs", "use_adaptive_rx_coalesce", "use_adaptive_tx_coalesce", "pkt_rate_low",
    "rx_coalesce_usecs_low", "rx_max_coalesced_frames_low", "tx_coalesce_usecs_low", "tx_max_coalesced_frames_low",
    "pkt_rate_high", "rx_coalesce_usecs_high", "rx_max_coalesced_frames_high", "tx_coalesce_usecs_high",
    "tx_max_coalesced_frames_high", "rate_sample_interval",
)  # fmt: skip
_LINK_SETTINGS = struct.Struct("=IIBxxBxxxb32x")
"""Of struct ethtool_link_settings: command, speed, duplex, autoneg, and how many words each of three masks has."""
_MASKS_BYTES = 3 * 127 * 4
_UNKNOWN_SPEEDS = (0, 0xFFFFFFFF, 0xFFFF)
_DUPLEX = {0: "Half", 1: "Full", 0xFF: "Unknown"}
_FEATURES = struct.Struct("=II")
_BLOCK = struct.Struct("=IIII")
"""Of 32 features: available, requested, active, never changed."""


class Device:
    """Makes ethtool requests for devices. Close it when done."""

    def __init__(self, host: Here) -> None:
        self._host = host
        self._features: Optional[List[str]] = None
        self._netlink: Optional[Netlink] = None
        self._family: Optional[int] = None

    def close(self) -> None:
        """Close the socket."""
        if self._netlink is not None:
            self._netlink.close()

    def all(self, facts: Facts, name: str) -> None:
        """Add all facts of a physical device."""
        self.driver(facts, name)
        self.offloads(facts, name)
        self._rings(facts, name)
        self._channels(facts, name)
        self._coalescing(facts, name)
        self._link(facts, name)
        self._indirection(facts, name)
        self._hash(facts, name)

    def driver(self, facts: Facts, name: str) -> None:
        """Add the driver, its version and that of the firmware."""
        source = "ethtool -i (ETHTOOL_GDRVINFO)"
        try:
            data = self._host.ethtool(name, struct.pack("=I", _GDRVINFO).ljust(_DRVINFO.size, b"\0"))
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
            blocks = -(-len(names) // 32)
            told = self._host.ethtool(name, _FEATURES.pack(_GFEATURES, blocks) + bytes(blocks * _BLOCK.size))
        except OSError as error:
            facts.unknown(key("nic", name, "offload"), source, _why(error))
            return
        for number, feature in enumerate(names):
            available, _, active, _ = _BLOCK.unpack_from(told, _FEATURES.size + number // 32 * _BLOCK.size)
            bit = 1 << number % 32
            if not feature or (not available & bit and not fixed):
                continue
            value = ("on" if active & bit else "off") + ("" if available & bit else " [fixed]")
            facts.put(key("nic", name, "offload", feature), value, source)

    def _rings(self, facts: Facts, name: str) -> None:
        source = "ethtool (rings)"
        try:
            answer = self._rings_by_netlink(name)
            if answer is None:
                answer = self._numbers(name, _GRINGPARAM, _RINGS_LAYOUT)
        except OSError as error:
            facts.unknown(key("nic", name, "ring"), source, _why(error))
            return
        _put(facts, name, "ring", answer, _RINGS, source)

    def _rings_by_netlink(self, name: str) -> Optional[Dict[str, int]]:
        """Since 5.6. It knows more than the ioctl. None where the driver or the kernel does not answer."""
        try:
            if self._netlink is None:
                self._netlink = self._host.netlink(NETLINK_GENERIC)
                self._family = families(self._netlink).get("ethtool")
            if self._family is None:
                return None
            header = attribute(_RINGS_HEADER, attribute(_HEADER_NAME, name.encode() + b"\0"), is_nested=True)
            body = self._netlink.ask(self._family, _GENERIC.pack(_MSG_RINGS_GET, 1) + header)
        except OSError:
            return None
        values = dict(attributes(body, _GENERIC.size))
        told = {name: values[number] for name, number in _RINGS_BY_NETLINK.items() if number in values}
        return {name: int.from_bytes(value[:4], sys.byteorder) for name, value in told.items()}

    def _channels(self, facts: Facts, name: str) -> None:
        source = "ethtool (channels)"
        try:
            answer = self._numbers(name, _GCHANNELS, _CHANNELS_LAYOUT)
        except OSError as error:
            facts.unknown(key("nic", name, "channels"), source, _why(error))
            return
        _put(facts, name, "channels", answer, _CHANNELS, source)

    def _link(self, facts: Facts, name: str) -> None:
        source = "ethtool (link_mode)"
        try:
            # The kernel first answers how many words its masks have, as a negative number.
            words = _LINK_SETTINGS.unpack_from(self._link_settings(name, 0))[-1]
            _, speed, duplex, autoneg, words = _LINK_SETTINGS.unpack_from(self._link_settings(name, -words))
            if words <= 0:
                raise OSError(errno.EOPNOTSUPP, "")
        except OSError as error:
            facts.unknown(key("nic", name, "link"), source, _why(error))
            return
        told: Dict[str, object] = {"autoneg": bool(autoneg)}
        if speed not in _UNKNOWN_SPEEDS:
            told["speed"] = speed
        if duplex in _DUPLEX:
            told["duplex"] = _DUPLEX[duplex]
        _put(facts, name, "link", told, told, source)

    def _coalescing(self, facts: Facts, name: str) -> None:
        source = "ethtool -c (ETHTOOL_GCOALESCE)"
        try:
            answer = self._numbers(name, _GCOALESCE, _COALESCE_LAYOUT)
        except OSError as error:
            facts.unknown(key("nic", name, "coalesce"), source, _why(error))
            return
        _put(facts, name, "coalesce", answer, answer, source)

    def _indirection(self, facts: Facts, name: str) -> None:
        """Add the RSS table as entries per queue, which shows whether it is even: ``0: 64, 1: 64``."""
        source = "ethtool -x (ETHTOOL_GRXFHINDIR)"
        fact = key("nic", name, "rss_indirection")
        try:
            size = _INDIRECTION.unpack(self._host.ethtool(name, _INDIRECTION.pack(_GRXFHINDIR, 0)))[1]
            if not 0 < size <= _MAX_INDIRECTION:
                facts.unknown(fact, source, f"a table of {size} entries")
                return
            request = _INDIRECTION.pack(_GRXFHINDIR, size) + bytes(4 * size)
            queues = struct.unpack_from(f"={size}I", self._host.ethtool(name, request), _INDIRECTION.size)
        except OSError as error:
            facts.unknown(fact, source, reason(error))
            return
        share = sorted(Counter(queues).items())
        facts.put(fact, ", ".join(f"{queue}: {entries}" for queue, entries in share), source)

    def _hash(self, facts: Facts, name: str) -> None:
        """Add by which fields flows are spread over the queues: ``sd`` by addresses, ``sdfn`` by ports, too."""
        source = "ethtool -n (ETHTOOL_GRXFH)"
        for flow, kind in _FLOWS.items():
            try:
                told = self._host.ethtool(name, _RXNFC.pack(_GRXFH, kind, 0).ljust(_RXNFC_BYTES, b"\0"))
            except OSError as error:
                facts.unknown(key("nic", name, "rss_hash"), source, _why(error))
                return
            _, _, fields = _RXNFC.unpack_from(told)
            letters = "".join(letter for letter, bit in _FIELDS.items() if fields & bit)
            facts.put(key("nic", name, "rss_hash", flow), letters or "none", source)

    def _feature_names(self, device: str) -> List[str]:
        """The names of all features, by their bits; the same for every device. Raises OSError."""
        if self._features is None:
            asked = _SSET_INFO.pack(_GSSET_INFO, 0, 1 << _SS_FEATURES, 0)
            count = min(_SSET_INFO.unpack(self._host.ethtool(device, asked))[3], _MAX_STRINGS)
            asked = _STRINGS.pack(_GSTRINGS, _SS_FEATURES, count) + bytes(count * _STRING_BYTES)
            text = self._host.ethtool(device, asked)[_STRINGS.size :]
            strings = (text[at : at + _STRING_BYTES] for at in range(0, count * _STRING_BYTES, _STRING_BYTES))
            self._features = [decoded(string.split(b"\0", 1)[0]) for string in strings]
        return self._features

    def _numbers(self, name: str, command: int, layout: Sequence[str]) -> Dict[str, int]:
        """A structure that has nothing but numbers."""
        whole = struct.Struct("={}I".format(1 + len(layout)))
        told = self._host.ethtool(name, struct.pack("=I", command).ljust(whole.size, b"\0"))
        return dict(zip(layout, whole.unpack(told)[1:]))

    def _link_settings(self, name: str, words: int) -> bytes:
        request = _LINK_SETTINGS.pack(_GLINKSETTINGS, 0, 0, 0, words)
        return self._host.ethtool(name, request + bytes(_MASKS_BYTES))


def _put(facts: Facts, name: str, area: str, values: Mapping[str, object], fields: Iterable[str], source: str) -> None:
    for field in fields:
        value = values.get(field)
        if isinstance(value, (str, int, bool)):
            facts.put(key("nic", name, area, field), value, source)


def _why(error: OSError) -> str:
    if error.errno == errno.ENODEV:
        return "the device is gone"
    return "the driver does not tell this" if error.errno == errno.EOPNOTSUPP else reason(error)
