"""Which signal a process of ours gets when the one that started it dies, however that dies."""

import ctypes

_PR_SET_PDEATHSIG = 1


def on_parents_death(number: int) -> None:
    """Asks the kernel for this signal (prctl(2)). Whoever died before was not noticed: compare getppid() afterwards."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
