"""Keeps compiled programs for the next start: a compile takes a second of a CPU, three for the biggest probe.

The name of a file is the digest of all that a compile reads: the kernel's BTF and release, BCC, the source, and this
package. So a file never gets out of date; at some time nobody asks for it any more. (The digest is of the BTF itself:
in a virtual machine, the build id in /sys/kernel/notes has been that of another kernel.)

Nobody else may choose what goes into the kernel. So the directory and the files belong to the user, nobody else may
write them, and a file has a checksum that includes its name.
"""

import contextlib
import json
import os
import stat
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from netconsole_collector.compile import compiled, type_files
from netconsole_collector.compile.compiled import Compiled
from netconsole_collector.kernel.syscalls import MACHINE
from netconsole_collector.types import btf, source_names
from netconsole_collector.types.sha256 import sha256

MAX_FILES = 64
"""The probes of a few kernels and versions; each file has 20 to 400 kB."""
_MAX_BYTES = 16 << 20
_MODE, _DIRECTORY_MODE = 0o600, 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_READ_BYTES = 1 << 16
_digests: Dict[Tuple[str, int, int, int], str] = {}
"""Of files that were read: by path, inode, time and size."""

Json = Dict[str, Any]


class KeptPlace(NamedTuple):
    """Where the programs of a job are kept."""

    folder: int
    name: str


@contextlib.contextmanager
def place_of(job: Json, spec: Json) -> Iterator[Optional[KeptPlace]]:
    """Where the programs of a job are kept, or would be; None where none are."""
    directory = job.get("keep_in")
    folder = open_folder(directory) if directory else None
    if folder is None:
        yield None
        return
    try:
        name = name_of(job, spec)
        yield None if name is None else KeptPlace(folder, name)
    finally:
        os.close(folder)


def name_of(job: Json, spec: Json) -> Optional[str]:
    """The file name for the programs of a job. ``spec`` has only the programs that apply to this kernel.

    None when we cannot tell what a compile would read: without BTF, or with libbcc in an unusual place.
    """
    libraries = source_names.bcc_libraries()
    try:
        kernel = type_files.of(job, spec)
    except (OSError, btf.BtfError):
        return None  # whoever compiles will say why
    if not kernel:
        return None
    if not libraries:
        return None
    asked = {key: job.get(key) for key in ("source", "cpus", "ring", "plain", "by_helpers")}
    # The names of the files of types without their directory: another machine may have compiled for this one.
    types = [os.path.basename(path) for path in kernel]
    machine, page = job.get("machine") or MACHINE, job.get("page") or os.sysconf("SC_PAGE_SIZE")
    there = [machine, job.get("release") or os.uname().release, page, types]
    try:
        what = json.dumps([spec, asked, there, [_version(path) for path in libraries]], sort_keys=True).encode()
        known = job.get("btf_digest")  # where the console keeps the types of another kernel
        carried = [path for path in kernel if os.path.dirname(path) != os.path.dirname(kernel[0])]
        types_of = [known.encode(), *_digests_of(carried)] if known else _digests_of(kernel)
        return _digest([what, *types_of, *_digests_of(_package())])
    except OSError:
        return None


def open_folder(directory: str) -> Optional[int]:
    """A descriptor of the directory, made if need be; None when there can be none.

    The path would not do: the compiler may have a /tmp of its own.
    """
    try:
        os.makedirs(directory, _DIRECTORY_MODE, exist_ok=True)
        return _open_own(directory, os.O_DIRECTORY)
    except OSError:
        return None


def find(folder: int, name: str) -> Optional[Compiled]:
    """The programs of this name; None when there is no file that can be used."""
    try:
        with os.fdopen(_open_own(name, 0, folder), "rb") as file:
            seal, _, text = file.read(_MAX_BYTES).partition(b"\n")
        if seal != _seal(name, text):
            return None
        os.utime(name, dir_fd=folder)
        return compiled.decode(text)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(folder: int, name: str, programs: Compiled) -> None:
    """Writes the whole file or nothing. After an error the next start compiles again."""
    text = compiled.encode(programs)
    try:
        _write(folder, name, _seal(name, text) + b"\n" + text)
        _forget_the_oldest(folder)
    except OSError:
        pass


def _write(folder: int, name: str, content: bytes) -> None:
    """Where the file system can (O_TMPFILE), the file has no name until it is whole: kill -9 leaves nothing."""
    temporary = None
    flags = os.O_WRONLY | os.O_CLOEXEC
    try:
        file = os.open(".", os.O_TMPFILE | flags, _MODE, dir_fd=folder)
    except OSError:
        temporary = "{}.{}".format(name, os.urandom(6).hex())
        file = os.open(temporary, os.O_CREAT | os.O_EXCL | flags, _MODE, dir_fd=folder)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
        if temporary is None:
            _forget(folder, name)  # a damaged one
            os.link("/proc/self/fd/{}".format(file), name, dst_dir_fd=folder, follow_symlinks=True)
        else:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        if temporary is not None:
            _forget(folder, temporary)
        raise
    finally:
        os.close(file)


def _forget(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def _forget_the_oldest(folder: int) -> None:
    """Keeps those that were used last."""
    used = sorted((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, name) for name in os.listdir(folder))
    for _, name in used[:-MAX_FILES]:
        _forget(folder, name)


def _open_own(path: str, flags: int, folder: Optional[int] = None) -> int:
    """Opens what belongs to this user, and nobody else may write. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=folder)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
        os.close(fd)
        raise PermissionError("{} belongs to another user, or others may write to it".format(path))
    return fd


def _seal(name: str, text: bytes) -> bytes:
    return _digest([name.encode(), text]).encode()


def _digest(parts: Iterable[bytes]) -> str:
    """Includes the lengths of the parts, so that no other parts give the same digest."""
    whole = sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return str(whole.hexdigest())


def _version(library: str) -> List[Any]:
    """Another version of the library has another time or size."""
    found = os.stat(library)
    return [library, found.st_size, found.st_mtime_ns]


def _package() -> Iterator[str]:
    """The collector's files, with those of every subpackage: the input of the compiler depends on them."""
    for directory, subdirectories, names in os.walk(_PACKAGE):
        subdirectories.sort()
        yield from (os.path.join(directory, name) for name in sorted(names) if name.endswith(".py"))


def _digests_of(paths: Iterable[str]) -> Iterator[bytes]:
    """Each file is read once in a process, unless it changes."""
    for path in paths:
        found = os.stat(path)
        known = path, found.st_ino, found.st_mtime_ns, found.st_size
        if known not in _digests:
            _digests[known] = _digest_of(path)
        yield _digests[known].encode()


def _digest_of(path: str) -> str:
    whole = sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(_READ_BYTES), b""):
            whole.update(part)
    return str(whole.hexdigest())
