"""The open descriptors of a process, from /proc/PID/fd. It may close them, or end, while they are read."""

import os
from typing import Iterator, Tuple


def opened(directory: str) -> Iterator[Tuple[str, str]]:
    """Number and target of each descriptor. None for a process that has ended, or that we may not look into."""
    try:
        numbers = os.listdir(directory)
    except OSError:
        return
    for number in numbers:
        try:
            yield number, os.readlink(os.path.join(directory, number))
        except OSError:
            continue  # closed meanwhile; the others count
