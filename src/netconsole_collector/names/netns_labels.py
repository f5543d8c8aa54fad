"""Tells how a label names a network namespace."""

import re

_LEAST_INODE = 0xEFFFFF00
_INODE = re.compile("[0-9]{10}")


def is_namespace_inode(text: str) -> bool:
    """Whether a label of a network namespace is its inode. `ip netns` takes names of digits, too: 42 is a name.

    The kernel numbers namespaces from 0xf0000000 on, the first ones just below (include/linux/nsfs.h).
    """
    return _INODE.fullmatch(text) is not None and _LEAST_INODE <= int(text) < 1 << 32
