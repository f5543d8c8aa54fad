"""A signal for this process when its parent dies, whatever it dies of."""

import ctypes

_PR_SET_PDEATHSIG = 1


def on_parents_death(number: int) -> None:
    """Asks the kernel for this signal (prctl(2)). A parent that has died before is not noticed: compare getppid()."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
