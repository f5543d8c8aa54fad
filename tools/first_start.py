"""Starts netconsole from the single file that `make dist` makes (docs/use/single-file.md).

Python cannot load compiled modules from an archive. So the first start unpacks the packages for this Python into the
user's cache, and says so. Nobody else may choose what is run: a directory there that is another user's, or that others
may write, is refused. An old Python reads this file too, to say what it lacks: no syntax newer than Python 3.6.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # or Ctrl-C while importing would print a traceback

import json
import os
import platform
import pwd
import shutil
import stat
import sys
import sysconfig
import time
import zipfile
from typing import Any, Dict, Iterator, NoReturn, Optional, Tuple

BAD_INPUT, UNABLE, INTERRUPTED = 2, 3, 130
ABOUT = "about.json"
SHARED = "all"
OURS = "netconsole"
PLACE = "app"
MAX_AGE_S = 30 * 86400
"""What has not been started for so long is removed, when another one is unpacked."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """There is no place to unpack to. The message is one line."""


def main() -> Any:
    """Unpacks, if that has not been done, and runs the command line."""
    archive = os.path.dirname(os.path.abspath(__file__))
    at_importing = signal.getsignal(signal.SIGINT)
    try:
        if at_importing is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # what is half unpacked is removed
        with zipfile.ZipFile(archive) as opened:
            about = json.loads(opened.read(ABOUT).decode())
            tag = fitting(about)
            where = prepared(opened, about, tag)
    except Refused as error:
        fail(str(error), UNABLE)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        fail(f"{archive}: damaged, or cannot be read: {error}", BAD_INPUT)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    signal.signal(signal.SIGINT, at_importing)
    sys.path[0] = where
    from netconsole.cli.start import main as command_line

    return command_line()


def fitting(about: Dict[str, Any]) -> str:
    """The tag of this Python, such as cp311. Raises Refused when the archive has no packages for it."""
    tag = "cp{}{}".format(*sys.version_info[:2])
    known = about["pythons"]
    if sys.implementation.name != "cpython" or tag not in known:
        told = ", ".join(f"{one[2]}.{one[3:]}" for one in known)
        this = f"{platform.python_implementation()} {platform.python_version()}"
        raise Refused(f"this file is for CPython {told}, and this is {this}; run it with another one: python3.N FILE")
    system = (sysconfig.get_config_var("SOABI") or "").partition("-")[2].partition("-")[2]
    if system != "{}-linux-gnu".format(about["machine"]):
        raise Refused(
            f"this file is for Linux with glibc on {about['machine']}; this Python is for {system or 'another'}"
        )
    return tag


def prepared(opened: zipfile.ZipFile, about: Dict[str, Any], tag: str) -> str:
    """The directory with the packages. Raises Refused and OSError."""
    name = "{}-{}".format(about["name"], tag)
    place, folder = own_place()
    try:
        try:
            os.close(opened_own(name, folder, place))
            os.utime(name, dir_fd=folder)
        except FileNotFoundError:
            unpack(opened, tag, place, folder, name)
    except OSError as error:
        raise Refused(f"cannot unpack to {place}: {error.strerror}; XDG_CACHE_HOME names another place") from None
    finally:
        os.close(folder)
    return os.path.join(place, name)


def own_place() -> Tuple[str, int]:
    """The first cache that is this user's alone: its path, and a descriptor of it. Raises Refused."""
    why = ""
    for base in caches():
        try:
            os.makedirs(base, 0o700, exist_ok=True)
            found = os.stat(base)
            check(found, base, (os.geteuid(), 0), bool(found.st_mode & stat.S_ISVTX))
            folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for name in (OURS, PLACE):
                base = os.path.join(base, name)
                try:
                    os.mkdir(name, 0o700, dir_fd=folder)
                except FileExistsError:
                    pass
                above, folder = folder, opened_own(name, folder, base)
                os.close(above)
            return base, folder
        except OSError as error:
            why = why or f"cannot unpack to {base}: {error.strerror}"
        except Refused as error:
            why = why or str(error)
    raise Refused(f"{why}; XDG_CACHE_HOME names another place")


def caches() -> Iterator[str]:
    """Where this user's cache may be: as configured, else in HOME, else in the home that the system knows (sudo)."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if configured.startswith("/"):
        yield configured
        return
    yield os.path.expanduser("~/.cache")
    try:
        yield os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".cache")
    except KeyError:
        pass


def opened_own(name: str, folder: int, path: str) -> int:
    """A descriptor of a directory that is this user's alone. Raises OSError and Refused."""
    try:
        inner = os.open(name, _DIRECTORY, dir_fd=folder)
    except NotADirectoryError:
        raise Refused(f"{path} is a link or a file, and not used") from None
    try:
        check(os.fstat(inner), path, (os.geteuid(),), False)
    except Refused:
        os.close(inner)
        raise
    return inner


def check(found: os.stat_result, path: str, owners: Tuple[int, ...], is_sticky: bool) -> None:
    """Raises Refused when others may change what is in this directory."""
    if found.st_uid not in owners:
        raise Refused(f"{path} belongs to another user, and is not used")
    if found.st_mode & _OTHERS_WRITE and not is_sticky:
        raise Refused(f"{path} can be written by others, and is not used (chmod go-w)")


def unpack(opened: zipfile.ZipFile, tag: str, place: str, folder: int, name: str) -> None:
    """Unpacks under another name, and renames it when it is whole: another start may do the same."""
    wanted = [one for one in opened.infolist() if one.filename.partition("/")[0] in (SHARED, tag) and not one.is_dir()]
    size = sum(one.file_size for one in wanted)
    say(f"unpacking {size / 1e6:.0f} MB to {place}/{name} (only once)")
    forget_old(place, folder)
    unfinished = f"unfinished-{os.getpid()}"
    path = os.path.join(place, unfinished)
    before = os.umask(0o077)
    try:
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path, 0o700)
        for one in wanted:
            write(path, one.filename.partition("/")[2], opened.read(one))
        try:
            os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.close(opened_own(name, folder, path))  # another start was faster
    finally:
        os.umask(before)
        shutil.rmtree(path, ignore_errors=True)


def write(root: str, inner: str, content: bytes) -> None:
    """One file of the archive. Raises ValueError for a name that would leave the directory."""
    parts = inner.split("/")
    if inner.startswith("/") or ".." in parts:
        raise ValueError("a name leads out of it")
    path = os.path.join(root, *parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def forget_old(place: str, folder: int) -> None:
    """Removes what nobody has started for long, and what was never finished."""
    for name in os.listdir(folder):
        number = name.partition("unfinished-")[2]
        is_dead = number.isdigit() and not os.path.exists(f"/proc/{number}")
        age_s = time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
        if is_dead or (not number and age_s > MAX_AGE_S):
            shutil.rmtree(os.path.join(place, name), ignore_errors=True)


def say(line: str) -> None:
    """One line on standard error, if somebody reads it."""
    try:
        sys.stderr.write(f"netconsole: {line}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


def fail(why: str, code: Optional[int]) -> NoReturn:
    say(why)
    sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())
