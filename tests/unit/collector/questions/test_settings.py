"""Settings of a namespace are read by their names, and nothing else is."""

from __future__ import annotations

import pytest

from netconsole_collector.questions.known import BadQuestion
from netconsole_collector.questions.settings import answer


def test_a_setting_is_called_by_the_last_part_of_its_name() -> None:
    found = answer({"netns": "host", "names": "ipv4/icmp_echo_ignore_all ipv4/no_such_setting"})
    assert found["icmp_echo_ignore_all"] in {0, 1}
    assert found["no_such_setting"] is None


@pytest.mark.parametrize("names", ["../../self/environ", "ipv4", "ipv4/../core/x", "/etc/passwd", "ipv4/a\x00b"])
def test_what_is_no_name_of_a_setting_is_refused(names: str) -> None:
    with pytest.raises(BadQuestion, match="names: expected names of settings"):
        answer({"netns": "host", "names": names})
