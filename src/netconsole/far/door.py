"""Opens the way to the host that is to be measured: logs in, fetches what is not known of its kernel, becomes root."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from netconsole.base.errors import Unable
from netconsole.far.host import THIS_HOST, AnyHost

if TYPE_CHECKING:
    from netconsole.far.far_host import FarHost
    from netconsole.far.ssh import SshLine

_LOCKED = "confidentiality"


class Approach:
    """Logs in to the host of ``--host`` while the caller does something else; None is this machine. Raises BadInput.

    ``may_ask``: ssh and sudo may ask on the terminal. ``line``: not the system's ssh.
    """

    def __init__(self, text: str | None, may_ask: bool, line: SshLine | None = None) -> None:
        self._host = None if text is None else _far(text, line)
        self._may_ask = may_ask
        self._why: Unable | None = None
        self._login = threading.Thread(target=self._connect, name="login", daemon=True)
        if self._host is not None:
            self._login.start()

    @property
    def is_far(self) -> bool:
        """Whether it leads to another machine."""
        return self._host is not None

    def enter(self, modules: Sequence[str]) -> AnyHost:
        """The host, after the login. ``modules``: kernel modules whose types probes name. Raises Unable."""
        if self._host is None:
            return THIS_HOST
        self._login.join()
        if self._why is not None:
            raise self._why
        _enter(self._host, modules, self._may_ask)
        return self._host

    def close(self) -> None:
        """Disconnect."""
        if self._host is not None:
            self._host.close()

    def _connect(self) -> None:
        assert self._host is not None
        try:
            self._host.connect(self._may_ask)
        except Unable as error:
            self._why = error


def _far(text: str, line: SshLine | None) -> FarHost:
    """Nothing of ssh is imported for this machine."""
    from netconsole.far import address
    from netconsole.far.far_host import FarHost

    return FarHost(address.parse(text), line)


def _enter(host: FarHost, modules: Sequence[str], may_ask: bool) -> None:
    from netconsole.base import paths
    from netconsole.far.compiling import FarCompiler, cannot_compile_for
    from netconsole.far.kernels import KernelStore

    store = KernelStore(paths.user_cache() / "kernels")
    about, contents = host.visit(modules, lambda found: [] if cannot_compile_for(found) else store.lacking(found.files))
    if about.lockdown == _LOCKED:
        raise Unable(
            f"{host.address}: the host's kernel is locked down ({_LOCKED}): no program may read the kernel's memory;"
            " boot the host with lockdown=integrity, or without Secure Boot"
        )
    why = cannot_compile_for(about)
    kernel = store.keep(about.files, contents) if why is None else None
    host.become_root(about, may_ask)
    if kernel is not None:
        host.compiler = FarCompiler(about, kernel)
    elif not about.has_bcc:
        raise Unable(
            f"{host.address}: nothing can compile for the host: {why}, and the host has no BCC itself;"
            " install python3-bpfcc (Debian, Ubuntu) or python3-bcc on this machine"
        )
