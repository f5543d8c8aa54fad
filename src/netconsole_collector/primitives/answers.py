"""Answers one question after another about this host: the name of a method and its arguments, as JSON has them.

It keeps what it has opened under numbers that the asker chooses. See `allowed.py` for what is refused.
"""

import errno
import json
import os
import socket
import struct
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from netconsole_collector.primitives import allowed, ethtool, files
from netconsole_collector.primitives.exchange import Exchange
from netconsole_collector.primitives.inside import Inside, make_inside, settings_inside
from netconsole_collector.primitives.netlink import RECEIVE_BYTES, Netlink
from netconsole_collector.primitives.netns_watch import Watch

MAX_ANSWER_BYTES = 8 << 20
MAX_OPEN = 600
"""256 namespaces, and a few sockets."""
STATUS = struct.Struct("<QQQq")
TOOK = struct.Struct("<I")
"""Before the answer of a control socket: how long it took, in units of 10 µs."""
MESSAGE = struct.Struct("<HBI")
"""Before each netlink message of an answer: its kind, whether it was asked for, its length."""
NETNS = b"/run/netns"


class Answerer:
    """Not thread-safe, but for what closes the namespaces whose owners are gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Dict[int, Any] = {}
        self._paths: Dict[int, Tuple[bytes, int]] = {}
        """Of opened namespaces: path and inode."""
        self._protocols: Dict[int, int] = {}
        self._families: Dict[int, str] = {}
        self._sockets: Dict[int, bytes] = {}
        self._watch: Optional[Watch] = None
        self._room = memoryview(bytearray(RECEIVE_BYTES))
        self._methods: Dict[str, Callable[..., bytes]] = {
            "read": self._read,
            "names": self._names,
            "below": self._below,
            "link": lambda path: os.readlink(allowed.link(_path(path))),
            "status": lambda path: STATUS.pack(*files.status(allowed.file(_path(path)))),
            "exists": self._exists,
            "inodes": self._inodes,
            "ethtool": lambda device, request: ethtool.ask(_path(device), _bytes(request)),
            "netlink": self._netlink,
            "inside": self._inside,
            "settings": self._settings,
            "dump": self._dump,
            "ask": self._ask,
            "listen": self._listen,
            "devices": self._devices,
            "connect": self._connect,
            "exchange": self._exchange,
            "close": self._close,
        }

    def answer(self, method: str, arguments: List[Any]) -> bytes:
        """Raises OSError, also for what makes no sense."""
        with self._lock:
            try:
                answer = self._methods[method](*arguments)
            except (KeyError, TypeError, ValueError, AttributeError, struct.error, IndexError):
                raise OSError(errno.EINVAL, "{}: a question that makes no sense".format(str(method)[:40])) from None
        if len(answer) > MAX_ANSWER_BYTES:
            raise OSError(errno.EMSGSIZE, "an answer of more than {} MB".format(MAX_ANSWER_BYTES >> 20))
        return answer

    def close(self) -> None:
        """Close everything."""
        with self._lock:
            for number in list(self._open):
                self._forget(number)
            watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
            watch.join()

    # ---- files ----

    def _read(self, path: str, limit: int = MAX_ANSWER_BYTES, from_end: bool = False) -> bytes:
        return files.read(allowed.content(_path(path)), min(limit, MAX_ANSWER_BYTES), from_end)

    def _names(self, path: str, limit: int) -> bytes:
        return b"\0".join(sorted(files.names(allowed.folder(_path(path)), limit)))

    def _below(self, path: str, without: str, limit: int) -> bytes:
        skipped = {_path(name): tuple(map(_path, kept)) for name, kept in json.loads(without).items()}
        return b"\0".join(files.below(allowed.folder(_path(path)), skipped, limit))

    def _exists(self, path: str) -> bytes:
        try:
            os.stat(allowed.file(_path(path)))
        except FileNotFoundError:
            return b"0"
        return b"1"

    def _inodes(self, name: str) -> bytes:
        allowed.file(b"/proc/self/" + _path(name))
        found = files.inodes(b"/proc", _path(name))
        return "\n".join("{} {}".format(pid, inode) for pid, inode in found.items()).encode("ascii")

    # ---- netlink ----

    def _netlink(self, number: int, protocol: int) -> bytes:
        self._put(number, Netlink(protocol, 0, None, self._room))
        self._protocols[number] = protocol
        return b""

    def _inside(self, number: int, path: str, inode: int) -> bytes:
        if not path:
            self._put(number, Inside(self._room))
            return b""
        name = allowed.namespace(_path(path))
        (opened,) = make_inside([(name, inode)], lambda: Inside(self._room))
        if isinstance(opened, OSError):
            raise opened
        self._put(number, opened)
        self._paths[number] = name, inode
        self._watch_them()
        return b""

    def _settings(self, path: str, inode: int) -> bytes:
        name = allowed.namespace(_path(path)) if path else b""
        return settings_inside(name, inode)

    def _dump(self, number: int, kind: int, request: str) -> bytes:
        netlink, body = self._asked(number, kind, request)
        answer = bytearray()
        netlink.unasked = lambda told, message: _append(answer, told, 0, message)
        for message in netlink.dump(kind, body):
            _append(answer, kind, 1, message)
        return bytes(answer)

    def _ask(self, number: int, kind: int, request: str) -> bytes:
        netlink, body = self._asked(number, kind, request)
        answer = bytearray()
        netlink.unasked = lambda told, message: _append(answer, told, 0, message)
        _append(answer, kind, 1, netlink.ask(kind, body))
        return bytes(answer)

    def _listen(self, number: int) -> bytes:
        netlink = self._socket(number)
        answer = bytearray()
        netlink.unasked = lambda told, message: _append(answer, told, 0, message)
        netlink.listen()
        return bytes(answer)

    def _devices(self, number: int) -> bytes:
        inside = self._thing(number)
        return bytes(inside.devices())

    def _asked(self, number: int, kind: int, request: str) -> Tuple[Netlink, bytes]:
        netlink, body = self._socket(number), _bytes(request)
        protocol = self._protocols.get(number, socket.NETLINK_ROUTE)
        if protocol == 16 and not self._families:
            self._families = _families()
        allowed.netlink(protocol, kind, body, self._families)
        return netlink, body

    def _socket(self, number: int) -> Netlink:
        thing = self._thing(number)
        netlink = thing.netlink if isinstance(thing, Inside) else thing
        if not isinstance(netlink, Netlink):
            raise TypeError
        return netlink

    # ---- control sockets ----

    def _connect(self, number: int, path: str, timeout_ms: int) -> bytes:
        name = allowed.unix_socket(_path(path))
        self._put(number, Exchange(name, timeout_ms / 1000))
        self._sockets[number] = name
        return b""

    def _exchange(self, number: int, request: str, timeout_ms: int) -> bytes:
        asked = json.loads(request)
        allowed.request(asked["method"], self._sockets[number])
        if asked["method"] == "transact":
            allowed.selects(asked["params"])
        exchange = self._thing(number)
        answer = bytes(exchange.ask(request.encode("utf-8"), timeout_ms / 1000))
        return TOOK.pack(min(int(exchange.took_s * 1e5), 0xFFFFFFFF)) + answer

    # ---- what is open ----

    def _put(self, number: int, thing: Any) -> None:
        if len(self._open) >= MAX_OPEN or number in self._open:
            thing.close()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._open[number] = thing

    def _thing(self, number: int) -> Any:
        if number not in self._open:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return self._open[number]

    def _close(self, number: int) -> bytes:
        if number in self._open:
            self._forget(number)
        return b""

    def _forget(self, number: int) -> None:
        self._open.pop(number).close()
        self._paths.pop(number, None)
        self._protocols.pop(number, None)
        self._sockets.pop(number, None)

    def _watch_them(self) -> None:
        try:
            if self._watch is None:
                self._watch = Watch(self._drop_gone)
            self._watch.directory(NETNS.decode())
            pids = [path.split(b"/")[2] for path, _ in self._paths.values() if path.startswith(b"/proc/")]
            self._watch.processes({int(pid) for pid in pids if pid.isdigit()})
        except OSError:
            return  # no descriptors left: who asks closes what is gone

    def _drop_gone(self) -> None:
        """In the thread of the watch: what is open in a namespace keeps that alive."""
        with self._lock:
            for number, (path, inode) in list(self._paths.items()):
                try:
                    is_gone = os.stat(path).st_ino != inode
                except OSError:
                    is_gone = True
                if is_gone:
                    self._forget(number)


def _path(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    """``3700+20``: hexadecimal, and the length with the zeros that are left out at the end."""
    begin, _, length = text.partition("+")
    return bytes.fromhex(begin).ljust(min(int(length), ethtool.MAX_BYTES), b"\0")


def _append(answer: bytearray, kind: int, is_asked: int, message: memoryview) -> None:
    if len(answer) > MAX_ANSWER_BYTES:
        raise OSError(errno.EMSGSIZE, "an answer of more than {} MB".format(MAX_ANSWER_BYTES >> 20))
    answer += MESSAGE.pack(kind, is_asked, len(message))
    answer += message


def _families() -> Dict[int, str]:
    """The families of generic netlink by number (CTRL_CMD_GETFAMILY), of those in allowed.GETTERS."""
    found: Dict[int, str] = {}
    netlink = Netlink(16)
    try:
        for body in netlink.dump(16, struct.pack("=BBxx", 3, 1)):
            name, number, offset = "", 0, 4
            while offset + 4 <= len(body):
                length, kind = struct.unpack_from("=HH", body, offset)
                if length < 4:
                    break
                value = bytes(body[offset + 4 : offset + length])
                if kind == 1:
                    number = struct.unpack_from("=H", value)[0]
                elif kind == 2:
                    name = value.rstrip(b"\0").decode("ascii", "replace")
                offset += (length + 3) & ~3
            if name in allowed.GETTERS:
                found[number] = name
    finally:
        netlink.close()
    return found
