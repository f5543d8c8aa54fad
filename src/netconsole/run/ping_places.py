"""Looks for the two ends of a ping on every host that is reached: this machine, and others over ssh.

What one host knows of an address helps the others: only one of them may have it in its neighbour table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from netconsole.base.errors import Unable
from netconsole.base.figure import safe
from netconsole.far.host import AnyHost
from netconsole.ping.capture import Role
from netconsole.sources.ping_ends import HostTables, PingEnd, find, own_macs, read_tables

HERE = "here"
HOST_ROLES: tuple[Role, ...] = ("host", "sender-host", "receiver-host")
"""The vantage points whose devices are looked for. A VM only says which MACs its addresses are at."""


@dataclass(slots=True)
class PlaceTables:
    """What the hosts of a plan know. Keys are "here" and ssh:// addresses."""

    tables: Mapping[str, HostTables]
    unreached: Mapping[str, str] = field(default_factory=dict)
    """Why a place cannot be entered, or its devices not be read."""


def read_places(at: Mapping[Role, str], enter: Callable[[str], AnyHost], also: Sequence[str] = ()) -> PlaceTables:
    """The tables of this machine, of each far host of a plan, and of the hosts ``also``.

    ``enter`` logs in; who gives it closes the host. Raises Unable when this machine's own devices cannot be read, and
    BadInput for an address that is none.
    """
    try:
        tables = {HERE: read_tables()}
    except OSError as error:
        raise Unable(f"netconsole cannot read the devices of this host: {_words(error)}") from None
    unreached: dict[str, str] = {}
    told: dict[str, str] = {}
    hosts = {*also, *(at[role] for role in HOST_ROLES if role in at)}
    for place in dict.fromkeys((*also, *at.values())):
        if place == HERE:
            continue
        try:
            host = enter(place)
            if place in hosts:
                tables[place] = read_tables(host)
            else:
                told |= own_macs(host)
        except Unable as error:
            unreached[place] = str(error).splitlines()[0]
        except OSError as error:
            unreached[place] = f"{place}: netconsole cannot read the devices of this host: {_words(error)}"
    return PlaceTables({place: replace(one, told=told) for place, one in tables.items()}, unreached)


def find_everywhere(asked: str, tables: Mapping[str, HostTables]) -> dict[str, PingEnd]:
    """One end of a ping as each place knows it. Never raises."""
    ends = {place: find(asked, one) for place, one in tables.items()}
    mac = _first(end.mac for end in ends.values())
    for place, end in ends.items():
        if mac and not end.mac and not end.taps and not end.is_host:
            by_mac = find(mac, tables[place])
            if by_mac.taps:
                ends[place] = replace(by_mac, asked=asked, address=end.address or by_mac.address)
    known = [(address, at) for one in tables.values() for address, at in one.neighbours.items()]
    address = _first([*(end.address for end in ends.values()), *(address for address, at in known if at and at == mac)])
    return {place: end if end.address or not address else replace(end, address=address) for place, end in ends.items()}


def best(ends: Mapping[str, PingEnd]) -> PingEnd:
    """The end at the place that has its tap, else as this machine knows it."""
    return next((end for end in ends.values() if end.is_vm_here), ends[HERE])


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")


def _words(error: OSError) -> str:
    return safe(error.strerror or error)
