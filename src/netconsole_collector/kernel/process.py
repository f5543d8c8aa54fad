"""This process: it ends with its parent, and its threads wake the one that polls."""

import ctypes
import os

_PR_SET_PDEATHSIG = 1


def on_parents_death(number: int) -> None:
    """Asks the kernel for this signal (prctl(2)). A parent that has died before is not noticed: compare getppid()."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


class WakePipe:
    """Any thread wakes the one that polls ``fd``, which is readable then."""

    def __init__(self) -> None:
        self.fd, self.end = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self.end, False)

    def wake(self) -> None:
        """Never waits."""
        try:
            os.write(self.end, b"\n")
        except BlockingIOError:
            pass  # it is awake

    def drain(self) -> None:
        """It is not readable any more."""
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass
