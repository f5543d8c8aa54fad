"""Reads files and directories, follows links, and finds who has a socket open. Writes nothing. Raises OSError."""

import itertools
import os
import re
from typing import Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple

MAX_FILE_BYTES = 4 * 1024 * 1024
"""The most that is read of one file. /proc/net/softnet_stat of 8192 CPUs has 1 MB."""
MAX_NAMES = 65536
"""The most entries that are read of one directory. /proc of a large host has about 20 000."""
CHUNK_BYTES = 256 * 1024
MAX_DESCRIPTORS = 50000
"""Links of /proc/PID/fd that are read to find the owners of sockets: about 0.1 s of CPU."""
_SOCKET = re.compile(r"socket:\[([0-9]+)\]")


class FileStatus(NamedTuple):
    """What stat(2) says of a path."""

    inode: int
    device: int
    mode: int
    changed_ns: int


def read(path: bytes, limit: int, from_end: bool = False) -> bytes:
    """The first bytes of a file, or the last: ``limit`` at most."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if from_end:
            size = os.lseek(descriptor, 0, os.SEEK_END)
            os.lseek(descriptor, max(0, size - limit), os.SEEK_SET)
        return read_open(descriptor, limit)
    finally:
        os.close(descriptor)


def read_open(descriptor: int, limit: int) -> bytes:
    """What is left of an open file."""
    chunks: List[bytes] = []
    while limit > 0:
        chunk = os.read(descriptor, min(limit, CHUNK_BYTES))
        if not chunk:
            break
        chunks.append(chunk)
        limit -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def read_each(directory: bytes, names: Iterable[bytes], limit: int) -> Dict[bytes, bytes]:
    """The first bytes of files of a directory, without those that are not there."""
    found: Dict[bytes, bytes] = {}
    for name in names:
        try:
            found[name] = read(directory + b"/" + name, limit)
        except FileNotFoundError:
            pass
    return found


def names(path: bytes, limit: int) -> List[bytes]:
    """The entries of a directory, in no order: ``limit`` at most."""
    return os.listdir(path)[:limit]


def status(path: bytes) -> FileStatus:
    """Of what the path leads to."""
    found = os.stat(path)
    return FileStatus(found.st_ino, found.st_dev, found.st_mode, found.st_mtime_ns)


def below(path: bytes, without: Dict[bytes, Tuple[bytes, ...]], limit: int) -> List[bytes]:
    """The files below a directory that anybody may read, relative to it, in order.

    ``without``: of directories of such a name only these entries.
    """
    found: List[bytes] = []
    for folder, folders, files in os.walk(path):
        name = os.path.basename(folder)
        if name in without:
            folders[:] = [one for one in folders if one in without[name]]
        folders.sort()
        paths = (os.path.join(folder, one) for one in sorted(files))
        found += (os.path.relpath(one, path) for one in paths if _may_be_read(one))
        if len(found) >= limit:
            break
    return found[:limit]


def inodes(proc: bytes, name: bytes) -> Dict[int, int]:
    """By process id: the inode of a file of each process, such as ``ns/net``."""
    found: Dict[int, int] = {}
    for pid in _processes(proc):
        try:
            found[pid] = os.stat(b"%s/%d/%s" % (proc, pid, name)).st_ino
        except OSError:
            continue  # it has ended, or is another user's
    return found


def owners(proc: bytes, sockets: Set[int]) -> Dict[int, str]:
    """Command and process id of the owners of these sockets, as far as MAX_DESCRIPTORS links show them."""
    found: Dict[int, str] = {}
    budget = MAX_DESCRIPTORS
    for pid in _processes(proc):
        process = b"%s/%d" % (proc, pid)
        try:
            with os.scandir(process + b"/fd") as descriptors:
                for descriptor in itertools.islice(descriptors, budget):
                    budget -= 1
                    match = _SOCKET.fullmatch(_target(descriptor.path))
                    if match and int(match.group(1)) in sockets:
                        found[int(match.group(1))] = "{}/{}".format(_command(process), pid)
        except OSError:
            continue  # the process ended, or belongs to another user
        if budget <= 0 or sockets <= found.keys():
            break
    return found


def _may_be_read(path: bytes) -> bool:
    try:
        return bool(os.stat(path).st_mode & 0o444)
    except OSError:
        return False


def _processes(proc: bytes) -> Iterator[int]:
    return iter(sorted(int(name) for name in os.listdir(proc) if name.isdigit()))


def _target(descriptor: bytes) -> str:
    try:
        return os.readlink(descriptor).decode("utf-8", "replace")
    except OSError:
        return ""  # closed meanwhile


def _command(process: bytes) -> str:
    try:
        return read(process + b"/comm", 64).decode("utf-8", "backslashreplace").rstrip("\n")
    except OSError:
        return "?"
