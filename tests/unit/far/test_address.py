"""What --host takes, and what it refuses before anything is started."""

from __future__ import annotations

import pytest

from netconsole.base.errors import BadInput
from netconsole.far.address import Address, parse


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ssh://hv", Address("hv")),
        ("ssh://root@hv-017.example.org:2222", Address("hv-017.example.org", "root", 2222)),
        ("ssh://192.0.2.7/", Address("192.0.2.7")),
        ("ssh://[2001:db8::7]:22", Address("2001:db8::7", None, 22)),
        ("ssh://a.b@CORP+x@hv", Address("hv", "a.b@CORP+x")),
    ],
)
def test_an_address_is_user_host_and_port(text: str, address: Address) -> None:
    assert parse(text) == address
    assert str(address) == text.rstrip("/")


@pytest.mark.parametrize(
    "text",
    [
        *("", "hv", "http://hv", "ssh://", "ssh://-oProxyCommand=x", "ssh://-l@hv", "ssh://hv:0", "ssh://hv:65536"),
        *("ssh://hv:22:22", "ssh://hv hv", "ssh://hv;id", "ssh://hv\n", "ssh://hv/x", "ssh://h\x1b[2J"),
        "ssh://" + "h" * 999,
    ],
)
def test_what_ssh_could_take_for_something_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text)
    said = str(caught.value)
    assert "expected ssh://[USER@]HOST[:PORT]" in said and len(said) < 200 and said.isprintable()
