"""Where probes, profiles and the collector are: in a checkout, in an installed wheel, and what a host adds of its own.

Probes are code that runs in the kernel, so they come only with the program or from /etc/netconsole, which root alone
writes. Profiles are figures and names, so a user's own are read too, from $XDG_CONFIG_HOME/netconsole/profiles.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
SYSTEM = Path("/etc/netconsole")
SYSTEM_PYTHON = "/usr/bin/python3"
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from netconsole_collector.__main__ import main; sys.exit(main())"
)


def data(kind: str) -> Path:
    """The shipped `probes` or `profiles`: inside an installed wheel, else beside `src` in a checkout."""
    installed = PACKAGE / "_data" / kind
    return installed if installed.is_dir() else PACKAGE.parents[1] / kind


def probe_directories() -> list[Path]:
    """Where probes are, the first wins."""
    return [data("probes"), SYSTEM / "probes"]


def profile_directories() -> list[Path]:
    """Where profiles are looked up by name; the first wins, so that a user may refine a shipped one."""
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


def _of_user(variable: str, otherwise: str) -> Path:
    """A relative value is ignored, as the XDG base directory specification asks."""
    configured = os.environ.get(variable, "")
    base = Path(configured) if configured.startswith("/") else Path(otherwise).expanduser()
    return base / "netconsole"


def collector_package() -> Path:
    """The directory of the package netconsole_collector, beside this one in a checkout and in a wheel."""
    return PACKAGE.parent / "netconsole_collector"


def collector_command(*arguments: str) -> list[str]:
    """The argument vector that runs the collector: isolated, so that neither environment nor user site reaches it.

    Collector and compile worker run on the system's interpreter, which is the one that has BCC. NETCONSOLE_PYTHON names
    another one, for a BCC that was built for it.
    """
    chosen = os.environ.get("NETCONSOLE_PYTHON")
    worker = ["--worker-python", chosen] if chosen else []
    python = chosen or SYSTEM_PYTHON
    return [python, "-I", "-c", _START, str(collector_package().parent), *worker, *arguments]


def measuring_command() -> list[str]:
    """The collector for a session: what it compiles is kept for the next one (docs/design/collector.md)."""
    return collector_command("--keep-compiled", str(user_cache() / "compiled"))
