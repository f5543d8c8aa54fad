"""Packets whose headers lie in a page fragment, and what a probe must know to read them there."""

from __future__ import annotations

import struct

from tests.support.live.contexts.memory import KernelMemory, place_of
from tests.support.live.contexts.unattached import UnattachedProbe

PAGES = 1 << 40
"""Where the array of struct page is said to begin."""


def know_pages(probe: UnattachedProbe) -> None:
    """Tells the probe where memory is mapped: as if the first page were a page before the test's own memory."""
    values = probe.memory.keep(struct.pack("=2Q", 0, PAGES))
    probe.running._maps.write("nc_page_map", struct.pack("=2Q", values, values + 8))


def in_fragment(memory: KernelMemory, skb: int, packet: bytes, head: int) -> int:
    """The same packet with ``head`` bytes of it in the linear data, the rest in the first fragment."""
    begin, data, end = memory.pointers("sk_buff", skb, "head", "data", "end")
    tail = data - begin + head
    memory.change("sk_buff", skb, {"tail": tail, "data_len": len(packet) - head})
    memory.put(data + head, bytes(len(packet) - head))
    place = memory.keep(packet[head:])
    page = PAGES + (place >> 12) * 64
    fragment = struct.pack("=QII", page, len(packet) - head, place & 0xFFF)
    memory.put(begin + end + place_of("skb_shared_info", "nr_frags")[0], b"\1")
    memory.put(begin + end + place_of("skb_shared_info", "frags")[0], fragment)
    return skb
