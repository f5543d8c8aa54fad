"""Gives memory back that nothing uses any more."""

import ctypes
import gc

_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3
_LARGE_BYTES = 64 * 1024
"""Blocks from this size on go back to the kernel when they are freed. By default glibc keeps ever larger ones."""


def one_for_all_threads() -> None:
    """Before the first thread: they share one heap. And what the imports have taken, most of all to compile, goes."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc's
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    trim()


def trim() -> None:
    """Give free pages back to the kernel. Takes about 1 ms."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc's
        libc.malloc_trim(0)
