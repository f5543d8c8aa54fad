"""The door of the lab waits long for its machines: the limits that it lengthens are there."""

from __future__ import annotations

from netconsole.far import far_host
from tests.lab.ping.door import patient


def test_a_machine_of_the_lab_may_be_silent_for_long() -> None:
    usual = far_host.ANSWER_S
    with patient(quiet_s := 3 * usual):
        assert quiet_s == far_host.ANSWER_S
    assert usual == far_host.ANSWER_S
