"""The `host` of the hello frame: its name, kernel, architecture and CPUs."""

import os
from typing import Any, Dict


def host() -> Dict[str, Any]:
    uname = os.uname()
    return {
        "name": uname.nodename,
        "kernel": uname.release,
        "arch": uname.machine,
        "os": _os_name(),
        "cpus": os.cpu_count() or 1,
        "boot_id": _first_line("/proc/sys/kernel/random/boot_id"),
    }


def _os_name() -> str:
    try:
        with open("/etc/os-release") as file:
            for line in file:
                if line.startswith("PRETTY_NAME="):
                    return line.split("=", 1)[1].strip().strip('"')
    except (OSError, UnicodeDecodeError):
        pass
    return os.uname().sysname


def _first_line(path: str) -> str:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""
