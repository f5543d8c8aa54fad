"""Parses a QEMU command line: the name of the VM, its network devices, and the options that affect networking."""

import json
from typing import Dict, List, Optional

OPTIONS = ("machine", "cpu", "smp", "m", "overcommit", "accel", "numa", "object")
"""Options of QEMU that become facts; `object` only for memory backends and I/O threads."""
_OBJECTS = ("memory-backend", "iothread", "thread-context")
_SECRETS = ("secret", "password", "file=")
_PROGRAMS = ("qemu-kvm", "kvm", "qemu-system")
_MAX_ARGUMENTS = 4096
MAX_TEXT = 256
"""Characters of a name that a frame has room for."""


class Nic:
    """One network device of a guest: the options of its back end (netdev) and front end (device)."""

    def __init__(self, netdev: str, backend: Dict[str, str], device: Optional[Dict[str, str]] = None) -> None:
        self.netdev = netdev
        self.backend = backend
        self.device: Dict[str, str] = device or {}

    @property
    def descriptors(self) -> List[int]:
        """The tap descriptors that libvirt passes, one per queue."""
        text = self.backend.get("fds") or self.backend.get("fd") or ""
        return [int(number) for number in text.split(":") if number.isdigit()]


class CommandLine:
    """The known options of a command line. Unknown ones are no error: QEMU has thousands."""

    def __init__(self) -> None:
        self.name: Optional[str] = None
        self.uuid: Optional[str] = None
        self.names_threads = False
        """Whether its threads have names (debug-threads=on)."""
        self.nics: List[Nic] = []
        self.sockets: Dict[str, str] = {}
        """Paths of character devices, by their names: those of vhost-user."""
        self.options: Dict[str, List[str]] = {}


def is_qemu(arguments: List[str]) -> bool:
    """Whether these are the words of a command line of QEMU."""
    program = arguments[0].rsplit("/", 1)[-1] if arguments else ""
    return program.startswith("qemu-system-") or program in _PROGRAMS


def machine_of(arguments: List[str], pid: str) -> str:
    """What the machine of a process is called: by its name, else its UUID, else the process."""
    line = parse(arguments)
    return line.name or line.uuid or "qemu ({})".format(pid)


def parse(arguments: List[str]) -> CommandLine:
    """Parse the arguments of a QEMU process. Never raises."""
    line = CommandLine()
    backends: Dict[str, Nic] = {}
    devices: List[Dict[str, str]] = []
    hub: Dict[str, List[Dict[str, str]]] = {"nic": [], "other": []}
    arguments = arguments[:_MAX_ARGUMENTS]
    for option, text in zip(arguments, [*arguments[1:], ""]):
        name = option.lstrip("-") if option.startswith("-") else ""
        if name == "name":
            named = keywords(text, "guest")
            line.name = named.get("guest", "")[:MAX_TEXT] or None
            line.names_threads = named.get("debug-threads") in ("on", "yes", "true")
        elif name == "uuid":
            line.uuid = text[:MAX_TEXT]
        elif name == "netdev":
            backend = keywords(text, "type")
            if backend.get("id"):
                backends[backend["id"]] = Nic(backend["id"], backend)
        elif name == "nic":
            both = keywords(text, "type")
            if both.get("type") not in (None, "none"):
                backends["-nic {}".format(len(backends))] = Nic(both.get("id", ""), both, _front_end(both))
        elif name == "net":
            one = keywords(text, "type")
            if one.get("netdev") in backends:
                backends[one["netdev"]].device = _front_end(one)
            elif one.get("type") not in (None, "none"):
                hub["nic" if one["type"] == "nic" else "other"].append(one)
        elif name == "chardev":
            both = keywords(text, "backend")
            if both.get("id") and both.get("path"):
                line.sockets[both["id"]] = both["path"][:MAX_TEXT]
        elif name == "device":
            devices.append(keywords(text, "driver"))
        elif name in OPTIONS and _harmless(name, text):
            line.options.setdefault(name, []).append(text)
    for device in devices:
        if device.get("netdev") in backends:
            backends[device["netdev"]].device = device
    fronts = [*map(_front_end, hub["nic"]), *({} for _ in hub["other"])]
    line.nics = [*backends.values(), *(Nic("", back, front) for back, front in zip(hub["other"], fronts))]
    return line


def _front_end(options: Dict[str, str]) -> Dict[str, str]:
    """The device of ``-nic`` and ``-net nic``, by the names that ``-device`` has for it."""
    named = {"model": "driver", "macaddr": "mac"}
    return {named.get(name, name): value for name, value in options.items() if name not in ("type", "id")}


def keywords(text: str, first: str) -> Dict[str, str]:
    """``tap,id=n0,fds=3:4`` or its JSON form as a dictionary. A first word without ``=`` is the value of ``first``."""
    if text.startswith("{"):
        try:
            decoded = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        if not isinstance(decoded, dict):
            return {}
        return {str(name): _plain(value) for name, value in decoded.items()}
    found: Dict[str, str] = {}
    for position, word in enumerate(text.replace(",,", "\0").split(",")):
        name, equals, value = word.replace("\0", ",").partition("=")
        if equals:
            found[name] = value
        elif position == 0:
            found[first] = name
        else:
            found[name] = "on"
    return found


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode()  # JSON may name half a character (a lone surrogate)


def _harmless(name: str, text: str) -> bool:
    """Whether a fact of this option is safe: objects may be secrets, so only memory and threads without keys are."""
    if name != "object":
        return True
    return any(word in text for word in _OBJECTS) and not any(word in text for word in _SECRETS)
