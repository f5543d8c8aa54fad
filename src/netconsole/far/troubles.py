"""Why a far host cannot be measured, in one sentence with the way out, from what ssh, a shell, sudo or Python said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from netconsole.base.errors import Unable
from netconsole.base.figure import safe
from netconsole.far.address import Address


class NeedsAnswer(Unable):
    """ssh or sudo has a question: somebody at a terminal may answer it."""


class _Trouble(NamedTuple):
    """What was said, and the sentence for it. ``{host}`` is how ssh takes it, ``{match}`` the words."""

    said: re.Pattern[str]
    sentence: str


def _known(*pairs: tuple[str, str]) -> list[_Trouble]:
    return [_Trouble(re.compile(said, re.IGNORECASE), sentence) for said, sentence in pairs]


_NO_PYTHON = "the host has no python3"
_UNKNOWN_KEY = "ssh does not know the host key yet"
_NOT_LET_IN = "the host refuses the keys and passwords that ssh offers"

_OF_SSH = _known(
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key for .* has changed",
        "the host key is not the one that ssh knows. The host was installed anew, or somebody is in between. Ask who"
        " runs the host. Only then run ssh-keygen -R {host}",
    ),
    (
        r"Host key verification failed|authenticity of host|No .* host key is known",
        _UNKNOWN_KEY + ": run ssh {host} once, compare the fingerprint, and try again",
    ),
    (
        r"Permission denied \(([\w,. -]*)\)|Too many authentication failures",
        _NOT_LET_IN + " ({match}): check that ssh {host} works",
    ),
    (r"Could not resolve hostname", "no such host: neither DNS nor ssh's configuration knows this name"),
    (r"Connection refused", "nothing answers at the host's ssh port: check the port, and that sshd runs there"),
    (
        r"(?:Connection|Operation) timed out|No route to host|Network is unreachable",
        "no answer from the host ({match}): check that the host is up, and that no firewall blocks ssh",
    ),
    (
        r"Connection (?:closed|reset) by|kex_exchange_identification",
        "the host ended the connection before the login: check that ssh {host} works",
    ),
    (
        r"Bad configuration option|Bad owner or permissions|terminating, \d+ bad",
        "ssh refuses its own configuration: {match}",
    ),
    (r"cannot start ssh", "{match}: install the package openssh-client"),
)

_OF_PYTHON = _known(
    (
        r"here is Python (\S+)",
        "the host's python3 is {match}, and netconsole needs 3.6 or later: install a newer one there",
    ),
    (
        r"python\S*:? *(?:command )?not found|Unknown command:? .*python|python\S*:? No such file",
        f"{_NO_PYTHON}, which netconsole needs there: install python3, version 3.6 or later",
    ),
    (
        r"not in the sudoers file|is not allowed to|may not run sudo",
        "this user is not root on the host, and sudo refuses this user: name another one, ssh://USER@HOST",
    ),
    (
        r"must have a tty|a terminal is required",
        "sudo on the host asks for a terminal (requiretty): log in as root, or exempt this user",
    ),
    (r"a password is required|incorrect password|no password was provided", "sudo on the host refused the password"),
    (
        r"sudo:? *(?:command )?not found|Unknown command:? .*sudo",
        "the host has no sudo: log in as root, ssh://root@{host}",
    ),
    (
        r"account is currently not available|interactive shell access|restricted shell|git-shell",
        "this user may not run programs on the host ({match}): name another one, ssh://USER@HOST",
    ),
)


def of_connection(address: Address, said: str) -> str:
    """Why ssh could not connect."""
    return _told(address, said, _OF_SSH, "ssh could not connect")


def of_program(address: Address, has_begun: bool, said: str, status: int) -> str:
    """Why a program there has ended. ``said``: what the shell or the program said; ``status``: that of ssh here."""
    if has_begun:
        last = _last_line(said)
        if status == 255 or "mux" in last:
            return f"{address}: the ssh connection broke"
        return f"{address}: {last or f'the program there ended with status {status}'}"
    is_ssh = not said.strip() or re.search(
        r"Control socket connect|mux_client|Broken pipe|ProxyCommand|kex_exchange", said
    )
    if status == 255 and is_ssh:
        return f"{address}: the ssh connection broke before a program of netconsole ran there; try again"
    return _told(address, said, _OF_PYTHON, "the login shell of the host does not run python3")


def is_question(told: str) -> bool:
    """Whether ssh would have asked somebody on a terminal, going by this sentence of :func:`of_connection`."""
    return _UNKNOWN_KEY in told or _NOT_LET_IN in told


def is_without_python(told: str) -> bool:
    """Whether this sentence says that there is no python3 of the name that was tried."""
    return _NO_PYTHON in told


def _told(address: Address, said: str, known: Sequence[_Trouble], otherwise: str) -> str:
    host = f"{address.user}@{address.host}" if address.user else address.host
    host = f"-p {address.port} {host}" if address.port else host
    for trouble in known:
        match = trouble.said.search(said)
        if match:
            words = match[1] if match.re.groups and match[1] else match[0]
            return f"{address}: {trouble.sentence.format(host=host, match=safe(words.strip(), 80))}"
    last = _last_line(said)
    return f"{address}: {otherwise}" + (f"; its last line: {last}" if last else "")


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return safe(lines[-1], 160) if lines else ""
