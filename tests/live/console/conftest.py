"""What several of these tests measure: a far host with a real sshd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.live.network import Namespace, Wire
from tests.support.live.ssh_server import SshServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """One for all tests of a file."""
    near, far = Namespace(), Namespace()
    try:
        one = SshServer(tmp_path_factory.mktemp("ssh"), Wire(near, far))
        try:
            yield one
        finally:
            one.close()
    finally:
        near.remove()
        far.remove()
