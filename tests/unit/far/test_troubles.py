"""What ssh and sudo say, as they say it, becomes one sentence with the way out."""

from __future__ import annotations

import pytest

from netconsole.far import troubles
from netconsole.far.address import Address

AT = Address("hv", "me", 2222)
CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (CHANGED, "the host key is not the one that ssh knows"),
        (CHANGED, "ssh-keygen -R -p 2222 me@hv"),
        ("No ED25519 host key is known for hv and you have requested strict checking.\nHost key verification failed.\n",
         "does not know the host key yet: run ssh -p 2222 me@hv once"),
        ("*** Authorised use only ***\nme@hv: Permission denied (publickey,password).\r\n", "(publickey,password)"),
        ("ssh: Could not resolve hostname hv: Name or service not known\r\n", "no such host"),
        ("ssh: connect to host hv port 22: Connection refused\r\n", "nothing answers at the host's ssh port"),
        ("ssh: connect to host hv port 22: Connection timed out\r\n", "no answer from the host (Connection timed out)"),
        ("kex_exchange_identification: Connection closed by remote host\r\n", "ended the connection before the login"),
        ("/home/ops/.ssh/config: line 3: Bad configuration option: foo\n", "ssh refuses its own configuration"),
        ("Something new\x1b[2J\n", "ssh could not connect; its last line: Something new\\x1b[2J"),
    ],
)  # fmt: skip
def test_why_there_is_no_connection(said: str, sentence: str) -> None:
    told = troubles.of_connection(AT, said)
    assert told.startswith("ssh://me@hv:2222: ") and sentence in told and told.isprintable()


@pytest.mark.parametrize(
    ("said", "status", "sentence"),
    [
        ("sudo: a password is required", 1, "sudo on the host refused the password"),
        ("me is not in the sudoers file.", 1, "not root on the host, and sudo refuses this user"),
        ("sudo: sorry, you must have a tty to run sudo", 1, "requiretty"),
        ("sh: 1: exec: sudo: not found", 127, "the host has no sudo: log in as root"),
        ("mux_client_request_session: read from master failed: Broken pipe", 255, "the ssh connection broke"),
        ("", 255, "the ssh connection broke before a program of netconsole ran there; try again"),
        ("", 1, "the login shell of the host does not run python3"),
    ],
)
def test_why_nothing_of_ours_runs_there(said: str, status: int, sentence: str) -> None:
    assert sentence in troubles.of_program(AT, False, said, status)


def test_the_end_of_a_program_that_ran_is_its_own_last_word_or_the_lines() -> None:
    assert troubles.of_program(AT, True, "Traceback\nMemoryError\n", 1) == "ssh://me@hv:2222: MemoryError"
    assert troubles.of_program(AT, True, "", 255) == "ssh://me@hv:2222: the ssh connection broke"
