"""What a process has open, from /proc/PID/fd: it may end, and close any of it, while we look."""

import os
from typing import Iterator, Tuple


def opened(directory: str) -> Iterator[Tuple[str, str]]:
    """Number and target of each descriptor; none of a process that has ended, or is not ours to look into."""
    try:
        numbers = os.listdir(directory)
    except OSError:
        return
    for number in numbers:
        try:
            yield number, os.readlink(os.path.join(directory, number))
        except OSError:
            continue  # closed meanwhile: that hides no other
