"""Finds probes, profiles and the collector: in a checkout, in an installed wheel, and those that a host adds.

Probes are code that runs in the kernel. So they come only with the program or from /etc/netconsole, where only root
writes. Profiles are figures and names. So a user's own are read too, from $XDG_CONFIG_HOME/netconsole/profiles.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
SYSTEM = Path("/etc/netconsole")
SYSTEM_PYTHON = "/usr/bin/python3"
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from importlib import import_module;"
    " sys.exit(import_module(sys.argv.pop(1)).main(sys.argv[1:]))"
)
COLLECTOR = "netconsole_collector.__main__"


def data(kind: str) -> Path:
    """The shipped `probes` or `profiles`: inside an installed wheel, else beside `src` in a checkout."""
    installed = PACKAGE / "_data" / kind
    return installed if installed.is_dir() else PACKAGE.parents[1] / kind


def probe_directories() -> list[Path]:
    """Directories of probes; the first that has a name wins."""
    return [data("probes"), SYSTEM / "probes"]


def profile_directories() -> list[Path]:
    """Directories of profiles; the first that has a name wins. So a user's profile may refine a shipped one."""
    return [user_config() / "profiles", SYSTEM / "profiles", data("profiles")]


def user_config() -> Path:
    """$XDG_CONFIG_HOME/netconsole."""
    return _of_user("XDG_CONFIG_HOME", "~/.config")


def user_data() -> Path:
    """$XDG_DATA_HOME/netconsole, where baselines are."""
    return _of_user("XDG_DATA_HOME", "~/.local/share")


def user_cache() -> Path:
    """$XDG_CACHE_HOME/netconsole, where compiled programs are kept."""
    return _of_user("XDG_CACHE_HOME", "~/.cache")


def user_state() -> Path:
    """$XDG_STATE_HOME/netconsole, where the choices of the console's user are."""
    return _of_user("XDG_STATE_HOME", "~/.local/state")


def _of_user(variable: str, otherwise: str) -> Path:
    """A relative value is ignored, as the XDG base directory specification asks."""
    configured = os.environ.get(variable, "")
    base = Path(configured) if configured.startswith("/") else Path(otherwise).expanduser()
    return base / "netconsole"


def collector_package() -> Path:
    """The directory of the package netconsole_collector, beside this one in a checkout and in a wheel."""
    return PACKAGE.parent / "netconsole_collector"


def collector_command(*arguments: str) -> list[str]:
    """The argument vector of the collector.

    Collector and compile worker run on the system's interpreter, because that one has BCC. NETCONSOLE_PYTHON names
    another interpreter, if BCC was built for that one.
    """
    chosen = os.environ.get("NETCONSOLE_PYTHON")
    worker = ["--worker-python", chosen] if chosen else []
    return program_command(COLLECTOR, *worker, *arguments)


def program_command(module: str, *arguments: str) -> list[str]:
    """The argument vector that runs ``main(arguments)`` of a module of netconsole_collector.

    It is isolated from environment variables and all site packages: it needs the standard library alone.
    """
    python = os.environ.get("NETCONSOLE_PYTHON") or SYSTEM_PYTHON
    return [python, "-I", "-S", "-c", _START, str(collector_package().parent), module, *arguments]


def measuring_command() -> list[str]:
    """The collector's command for a session: it keeps compiled programs for the next one (docs/design/collector.md)."""
    return collector_command("--keep-compiled", str(user_cache() / "compiled"))
