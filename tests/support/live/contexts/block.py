"""Block devices, bios and requests of a test's own, and what the block layer's tracepoints say of them."""

from __future__ import annotations

from netconsole_collector.types.btf import TYPEDEF
from tests.support.live.contexts.memory import enumerator, kernel_types, place_of
from tests.support.live.contexts.moments import Span, at
from tests.support.live.contexts.unattached import UnattachedProbe

READ, WRITE, FLUSH, DISCARD = 0, 1, 2, 3
"""REQ_OP_ of include/linux/blk_types.h."""
SENT_TO_DRIVER = 34
"""REQ_OP_DRV_IN: what is neither of those."""


def preflush() -> int:
    """REQ_PREFLUSH: the device writes out its cache first."""
    return 1 << enumerator("req_flag_bits", "__REQ_PREFLUSH")


def _has(structure: str, member: str) -> bool:
    try:
        place_of(structure, member)
    except KeyError:
        return False
    return True


class Disks:
    """One disk with requests and one without; programs run as the kernel would run them."""

    NAMES = "made0", "made-of-others0"

    def __init__(self, probe: UnattachedProbe) -> None:
        self.probe, self.memory = probe, probe.memory
        self._names_requests = bool(kernel_types().named("btf_trace_block_io_start", (TYPEDEF,)))
        self._is_old = _has("bio", "bi_disk")
        """Up to 5.11 a bio names the disk, and tracepoints begin with the queue."""
        self.here, self.above = (self.disk(name, number == 0) for number, name in enumerate(self.NAMES))

    def disk(self, name: str, has_requests: bool = True) -> int:
        tags = self.memory.make("blk_mq_tag_set", {})
        queue = self.memory.make("request_queue", {"mq_ops": 1 if has_requests else 0, "tag_set": tags})
        disk = self.memory.make("gendisk", {"disk_name": name.encode(), "queue": queue})
        if _has("request_queue", "disk"):
            self.memory.change("request_queue", queue, {"disk": disk})
        return disk

    def hold(self, queue: int, requests: int, queues: int) -> None:
        """A device's queue may have so many requests at once by each of so many queues of the hardware."""
        (tags,) = self.memory.pointers("request_queue", queue, "tag_set")
        self.memory.change("request_queue", queue, {"nr_requests": requests})
        first = tags + place_of("blk_mq_tag_set", "map")[0]
        self.memory.change("blk_mq_queue_map", first, {"nr_queues": queues})

    def bio(self, operation: int, size: int, disk: int = 0, sector: int = 0, status: int = 0) -> int:
        disk = disk or self.here
        part = 0 if self._is_old else self.memory.make("block_device", {"bd_disk": disk})
        device = {"bi_disk": disk} if self._is_old else {"bi_bdev": part}
        members = {"bi_opf": operation, "bi_iter.bi_size": size, "bi_iter.bi_sector": sector, "bi_status": status}
        return self.memory.make("bio", {**members, **device})

    def request(self, operation: int, size: int, disk: int = 0, bio: int = 0, sector: int = 0) -> int:
        disk = disk or self.here
        (queue,) = self.memory.pointers("gendisk", disk, "queue")
        of = {"rq_disk": disk} if _has("request", "rq_disk") else {}
        members = {"q": queue, "cmd_flags": operation, "__data_len": size, "__sector": sector, "bio": bio, **of}
        return self.memory.make("request", members)

    def _bio_run(self, program: str, bio: int, *more: int) -> Span:
        return at(lambda: self.probe.run(program, *([0] if self._is_old else []), bio, *more))

    def queued(self, bio: int) -> Span:
        return self._bio_run("bio_queued", bio)

    def bio_completed(self, bio: int) -> Span:
        return at(lambda: self.probe.run("bio_completed", 0, bio))

    def merged(self, bio: int, program: str = "back_merged") -> Span:
        return at(lambda: self.probe.run(program, *([0, 0] if self._is_old else []), bio))

    def split(self, bio: int) -> Span:
        return self._bio_run("bio_split", bio, 0)

    def started(self, operation: int, size: int, disk: int = 0, sector: int = 0) -> tuple[int, Span]:
        """A bio becomes a request; before 6.5 only the bio is named."""
        bio = self.bio(operation, size, disk, sector)
        request = self.request(operation, size, disk, bio, sector)
        if self._names_requests:
            return request, at(lambda: self.probe.run("started", request))
        return request, self._bio_run("started", bio, 0)

    def told(self, program: str, request: int, *more: int) -> Span:
        """A program that is given the request: inserted, issued, requeued, absorbed."""
        return at(lambda: self.probe.run(program, request, *more))

    def completed(self, request: int, size: int, error: int = 0) -> Span:
        return self.told("completed", request, error, size)

    def served(self, operation: int, size: int, disk: int = 0) -> int:
        """A whole request without a scheduler."""
        request, _ = self.started(operation, size, disk)
        self.told("issued", request)
        self.completed(request, size)
        return request
