"""Asks the driver of a network device by the ioctl of ethtool (include/uapi/linux/ethtool.h). Changes nothing."""

import array
import errno
import fcntl
import os
import socket
import struct

SIOCETHTOOL = 0x8946
GETTERS = frozenset((0x03, 0x0E, 0x10, 0x1B, 0x1D, 0x37, 0x38, 0x3A, 0x3C, 0x4C))
"""GDRVINFO, GCOALESCE, GRINGPARAM, GSTRINGS, GSTATS, GSSET_INFO, GRXFHINDIR, GFEATURES, GCHANNELS, GLINKSETTINGS."""
MAX_BYTES = 256 * 1024
"""The names of 8000 counters."""
_MIN_BUFFER = 64 * 1024
_IFREQ = struct.Struct("16sP16x")
_COMMAND = struct.Struct("=I")


def ask(device: bytes, request: bytes) -> bytes:
    """The structure that begins with one of GETTERS, as the kernel has filled it in. Raises OSError."""
    if len(request) < _COMMAND.size or len(request) > MAX_BYTES or _COMMAND.unpack_from(request)[0] not in GETTERS:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    # The kernel decides how much it writes: some structures end with a list, which may have grown since it was counted.
    buffer = array.array("B", request.ljust(max(_MIN_BUFFER, 2 * len(request)), b"\0"))
    address, _ = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asked:
        fcntl.ioctl(asked, SIOCETHTOOL, _IFREQ.pack(device[:15], address))
    return buffer.tobytes()[: len(request)]
