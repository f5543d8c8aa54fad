"""Parses the disks on a QEMU command line: -blockdev, -drive and -device, with the limits that QEMU keeps itself."""

from typing import Dict, List, NamedTuple, Optional

from netconsole_collector.sources.vm.qemu import keywords

MAX_DISKS = 256
_MAX_NODES = 16
"""In the chain of one disk."""
_LEGACY = ("hda", "hdb", "hdc", "hdd")
_INVISIBLE = "vhost-user-blk"
_FORMATS = ("raw", "qcow2", "qcow", "vmdk", "vdi", "vpc", "vhdx", "luks", "qed", "parallels", "bochs", "cloop", "dmg")
_CACHE_MODES = {
    "none": ("on", "off"),
    "writeback": ("off", "off"),
    "writethrough": ("off", "off"),
    "directsync": ("on", "off"),
    "unsafe": ("off", "on"),
}
"""What -drive cache= means: cache.direct and cache.no-flush (QEMU's block.c)."""
_THROTTLED = ("throttling.", "limits.", "x-")
_OLD_LIMITS = ("iops", "iops_rd", "iops_wr", "bps", "bps_rd", "bps_wr")

_Words = Dict[str, str]


class VmDisk(NamedTuple):
    """One disk of a guest. What is not on the command line is None, and QEMU's default."""

    model: str
    format: Optional[str]
    protocol: Optional[str]
    """The driver of its lowest node: file, host_device, rbd, nbd, …; vhost-user where another process serves it."""
    file: Optional[str]
    """An absolute path; other places (URIs) may hold secrets, and are left out."""
    aio: Optional[str]
    cache_direct: Optional[str]
    cache_no_flush: Optional[str]
    discard: Optional[str]
    read_only: Optional[str]
    write_cache: Optional[str]
    iothread: Optional[str]
    queues: Optional[str]
    queue_size: Optional[str]
    limits: Optional[str]
    """Those of QEMU's throttle group, as name=value, sorted."""


class _Options:
    """What the options say, by node and by id."""

    def __init__(self, arguments: List[str]) -> None:
        self.nodes: Dict[str, _Words] = {}
        self.drives: Dict[str, _Words] = {}
        self.plain: List[_Words] = []
        """Drives that bring their own device (if=)."""
        self.devices: List[_Words] = []
        self.groups: Dict[str, _Words] = {}
        for option, text in zip(arguments, arguments[1:]):
            name = option.lstrip("-") if option.startswith("-") else ""
            if name == "blockdev":
                words = flat(text, "driver")
                self.nodes[words.get("node-name", "")] = words
            elif name == "drive":
                words = flat(text, "file")
                self.drives[words.get("id", "")] = words
                if words.get("if", "ide") != "none":
                    self.plain.append(words)
            elif name in _LEGACY:
                self.plain.append({"file": text, "if": "ide"})
            elif name == "device":
                self.devices.append(flat(text, "driver"))
            elif name == "object" and "throttle-group" in text:
                words = flat(text, "qom-type")
                self.groups[words.get("id", "")] = words


def disks(arguments: List[str]) -> List[VmDisk]:
    """In the order of the command line: devices first, then drives that bring their own. Never raises."""
    options = _Options(arguments)
    by_id = {device["id"]: device for device in options.devices if device.get("id")}
    found = []
    for device in options.devices:
        model = device.get("driver", "")
        if model.startswith(_INVISIBLE):
            found.append(_of(model, device, {}, [], options, protocol="vhost-user"))
        elif device.get("drive"):
            controller = by_id.get(device.get("bus", "").partition(".")[0], {})
            found.append(_of(model, device, controller, _chain(options, device["drive"]), options))
    used = {device.get("drive") for device in options.devices}
    for drive in options.plain:
        if drive.get("if") != "pflash" and drive.get("id", "\0") not in used and drive.get("media") != "cdrom":
            found.append(_of(drive.get("if", "ide"), {}, {}, [drive], options))
    return found[:MAX_DISKS]


def _chain(options: _Options, name: str) -> List[_Words]:
    """The nodes of a disk, the uppermost first; a drive is one node."""
    if name in options.drives:
        return [options.drives[name]]
    found: List[_Words] = []
    while name in options.nodes and len(found) < _MAX_NODES:
        node = options.nodes[name]
        found.append(node)
        name = node.get("file", "")
    return found


def _of(
    model: str,
    device: _Words,
    controller: _Words,
    chain: List[_Words],
    options: _Options,
    protocol: Optional[str] = None,
) -> VmDisk:
    lowest = chain[-1] if chain else {}
    path = next((lowest[name] for name in ("filename", "file.filename", "file") if lowest.get(name)), "")
    drivers = [one[name] for one in chain for name in ("format", "driver", "file.driver") if one.get(name)]
    direct, no_flush = _CACHE_MODES.get(lowest.get("cache", ""), (None, None))
    return VmDisk(
        model=model,
        format=next((one for one in drivers if one in _FORMATS), None),
        protocol=protocol or next((one for one in reversed(drivers) if one not in _FORMATS), None),
        file=path if path.startswith("/") else None,
        aio=_first(chain, "aio", "file.aio"),
        cache_direct=_first(chain, "cache.direct", "file.cache.direct") or direct,
        cache_no_flush=_first(chain, "cache.no-flush", "file.cache.no-flush") or no_flush,
        discard=_first(chain, "discard", "file.discard"),
        read_only=_first(chain, "read-only", "readonly"),
        write_cache=device.get("write-cache"),
        iothread=device.get("iothread") or controller.get("iothread"),
        queues=device.get("num-queues") or device.get("num_queues") or controller.get("num_queues"),
        queue_size=device.get("queue-size"),
        limits=_limits(chain, options),
    )


def _first(chain: List[_Words], *names: str) -> Optional[str]:
    return next((node[name] for node in chain for name in names if node.get(name)), None)


def _limits(chain: List[_Words], options: _Options) -> Optional[str]:
    """Of the drive itself, and of the groups of its throttle nodes."""
    said: _Words = {}
    for node in chain:
        for words in (node, options.groups.get(node.get("throttle-group", ""), {})):
            for name, value in words.items():
                limit = next((name[len(one) :] for one in _THROTTLED if name.startswith(one)), "")
                if name in _OLD_LIMITS:
                    limit = name.replace("_rd", "-read").replace("_wr", "-write")
                if limit.startswith(("iops", "bps")) and value != "0":
                    said[limit] = value
    return ", ".join(f"{name}={said[name]}" for name in sorted(said)) or None


def flat(text: str, first: str) -> _Words:
    """As :func:`keywords`, with what is nested in JSON as QEMU's dotted keys: ``cache.direct``."""
    if not text.startswith("{"):
        return keywords(text, first)
    found: _Words = {}
    waiting = [("", keywords(text, first))]
    while waiting and len(found) < 1000:
        before, words = waiting.pop()
        for name, value in words.items():
            if value.startswith("{") and before.count(".") < _MAX_NODES:
                waiting.append((before + name + ".", keywords(value, first)))
            else:
                found[before + name] = value
    return found
