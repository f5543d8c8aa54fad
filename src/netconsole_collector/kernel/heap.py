"""Gives memory back that nothing uses any more."""

import ctypes
import gc

_M_ARENA_MAX = -8


def one_for_all_threads() -> None:
    """Before the first thread: they share one heap. And what the imports have taken, most of all to compile, goes."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc's
        libc.mallopt(_M_ARENA_MAX, 1)
    trim()


def trim() -> None:
    """Give free pages back to the kernel. Takes about 1 ms."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc's
        libc.malloc_trim(0)
