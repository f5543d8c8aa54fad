"""Opens the way to the host that is to be measured: logs in, fetches what is not known of its kernel, becomes root."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.base import paths
from netconsole.base.errors import Unable
from netconsole.far import address
from netconsole.far.compiling import FarCompiler, cannot_compile_for
from netconsole.far.host import AnyHost, FarHost, ThisHost
from netconsole.far.kernels import KernelStore

_LOCKED = "confidentiality"


def open_host(text: str | None, modules: Sequence[str], may_ask: bool) -> AnyHost:
    """The host of ``--host``; None: this machine. Raises BadInput, and Unable with the way out.

    ``modules``: kernel modules whose types probes name. ``may_ask``: ssh and sudo may ask on the terminal.
    """
    if text is None:
        return ThisHost()
    host = FarHost(address.parse(text))
    try:
        _enter(host, modules, may_ask)
    except BaseException:
        host.close()
        raise
    return host


def _enter(host: FarHost, modules: Sequence[str], may_ask: bool) -> None:
    host.connect(may_ask)
    store = KernelStore(paths.user_cache() / "kernels")
    about, contents = host.visit(modules, lambda found: [] if cannot_compile_for(found) else store.lacking(found.files))
    if about.lockdown == _LOCKED:
        raise Unable(
            f"{host.address}: its kernel is locked down ({_LOCKED}): no program may read its memory;"
            " boot it with lockdown=integrity, or without Secure Boot"
        )
    host.become_root(about, may_ask)
    why = cannot_compile_for(about)
    if why is None:
        host.compiler = FarCompiler(about, store.keep(about.files, contents))
    elif not about.has_bcc:
        raise Unable(
            f"{host.address}: nothing can compile for it: {why}, and it has no BCC itself;"
            " install python3-bpfcc (Debian, Ubuntu) or python3-bcc here"
        )
