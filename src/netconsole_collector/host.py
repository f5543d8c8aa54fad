"""The `host` of the hello frame: its name, kernel, architecture and CPUs."""

import os
import platform
from typing import Any, Dict


def host() -> Dict[str, Any]:
    return {
        "name": platform.node(),
        "kernel": platform.release(),
        "arch": platform.machine(),
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
    return platform.system()


def _first_line(path: str) -> str:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""
