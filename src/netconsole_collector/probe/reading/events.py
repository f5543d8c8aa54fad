"""Reads the sampled events of a probe from its ring buffers or perf buffers."""

from typing import Any, Dict, List, NamedTuple, Optional, Union

from netconsole_collector.kernel import bpf_maps
from netconsole_collector.kernel.rings import PerfBuffer, RingBuffer
from netconsole_collector.names.labels import Labeller
from netconsole_collector.probe.reading import decode

MAX_EVENTS = 2000
"""Events of one interval that are sent; the rest counts as shed."""

Json = Dict[str, Any]


class _Event(NamedTuple):
    """An event of the manifest."""

    map: str
    name: str
    layout: decode.Layout


class EventReader:
    """All events of a probe."""

    def __init__(self, labels: Labeller) -> None:
        self.shed = 0
        """Events that were submitted and not sent."""
        self._labels = labels
        self._buffers: Dict[str, Union[RingBuffer, PerfBuffer]] = {}
        self._events: List[_Event] = []

    def add(self, name: str, spec: Json, map_fd: int) -> None:
        """An event of the manifest. Several may share a map. Raises OSError and decode.LayoutError."""
        if spec["map"] not in self._buffers:
            is_ring = bpf_maps.map_info(map_fd).type == bpf_maps.MAP_RINGBUF
            self._buffers[spec["map"]] = RingBuffer(map_fd) if is_ring else PerfBuffer(map_fd)
        self._events.append(_Event(spec["map"], name, decode.Layout(spec["record"])))

    def __bool__(self) -> bool:
        """Whether the probe has events."""
        return bool(self._buffers)

    def read(self) -> List[Json]:
        """Bodies of the frames of events."""
        bodies: List[Json] = []
        for map_name, buffer in self._buffers.items():
            while True:
                records = buffer.read(MAX_EVENTS)
                room = MAX_EVENTS - len(bodies)
                self.shed += max(0, len(records) - room)
                bodies.extend(body for body in (self._body(map_name, raw) for raw in records[:room]) if body)
                if len(records) < MAX_EVENTS:
                    break
        return bodies

    def _body(self, map_name: str, raw: bytes) -> Optional[Json]:
        """The first event of the manifest that has this map and fits: perf records are padded to a multiple of 8."""
        for event in self._events:
            layout = event.layout
            if event.map == map_name and layout.size <= len(raw) < layout.size + 8:
                fields = decode.event_fields(layout.columns, layout.unpack(raw), self._labels)
                return {"kind": "event", "name": event.name, "fields": fields}
        self.shed += 1
        return None

    def close(self) -> None:
        for buffer in self._buffers.values():
            buffer.close()
        self._buffers = {}
