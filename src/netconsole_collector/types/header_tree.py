"""The header tree that BCC compiles against (BCC_KERNEL_SOURCE): a few small files instead of the kernel's headers.

BCC includes linux/kconfig.h, its own bpf.h, and helpers.h, in this order (since 0.16). helpers.h includes
uapi/linux/bpf.h, uapi/linux/if_packet.h, linux/version.h, linux/log2.h and asm/page.h. So the kernel's types are in
asm/page.h, the last one, without those that bpf.h has already. uapi/linux/bpf.h stays empty.
"""

import ctypes
import os
import re
import stat
import sys
from typing import Callable, Dict, List, Set, Tuple

_ARCH = {
    "x86_64": ("x86", "CONFIG_X86_64"),
    "aarch64": ("arm64", "CONFIG_ARM64"),
    "ppc64le": ("powerpc", "CONFIG_PPC64"),
}
_ARCH["s390x"] = ("s390", "CONFIG_S390")

_KCONFIG_H = """#ifndef NETCONSOLE_KCONFIG_H
#define NETCONSOLE_KCONFIG_H
#define CONFIG_BPF_SYSCALL 1
#define CONFIG_64BIT 1
#define CONFIG_SMP 1
#define {config} 1
#define CONFIG_ARCH_HAS_SYSCALL_WRAPPER 1
#include <linux/types.h>
#include <linux/version.h>
#endif
"""

_VERSION_H = """#ifndef LINUX_VERSION_CODE
#define LINUX_VERSION_CODE {code}
#define KERNEL_VERSION(a,b,c) (((a) << 16) + ((b) << 8) + ((c) > 255 ? 255 : (c)))
#endif
"""

_PAGE_H = """#ifndef NETCONSOLE_PAGE_H
#define NETCONSOLE_PAGE_H
#ifndef PAGE_SIZE
#define PAGE_SIZE {page}
#define PAGE_SHIFT {shift}
#define PAGE_MASK (~(PAGE_SIZE - 1))
#endif
#include "kernel_types.h"
#endif
"""

_TYPEDEFS = """
unsigned char __u8 u8 uint8_t
signed char __s8 s8 int8_t
unsigned short __u16 u16 uint16_t __le16 __be16 __sum16
short __s16 s16 int16_t
unsigned int __u32 u32 uint32_t __le32 __be32 __wsum
int __s32 s32 int32_t __kernel_pid_t pid_t
unsigned long long __u64 u64 uint64_t __le64 __be64
long long __s64 s64 int64_t
unsigned long __kernel_ulong_t __kernel_size_t size_t uintptr_t
long __kernel_long_t __kernel_ssize_t ssize_t
_Bool bool
"""

_TYPES_H_END = """
enum { false = 0, true = 1 };
#ifndef NULL
#define NULL ((void *)0)
#endif
#define __aligned_u64 __u64 __attribute__((aligned(8)))
#define __user
#define __rcu
#define __percpu
#endif
"""

_BPF_COMMON_H = """#ifndef _UAPI__LINUX_BPF_COMMON_H__
#define _UAPI__LINUX_BPF_COMMON_H__
#define BPF_CLASS(code) ((code) & 0x07)
#define BPF_SIZE(code) ((code) & 0x18)
#define BPF_MODE(code) ((code) & 0xe0)
#define BPF_OP(code) ((code) & 0xf0)
#define BPF_SRC(code) ((code) & 0x08)
{constants}#ifndef BPF_MAXINSNS
#define BPF_MAXINSNS 4096
#endif
#endif
"""

_BPF_COMMON = """
LD 0 LDX 1 ST 2 STX 3 ALU 4 JMP 5 RET 6 MISC 7 W 0 H 8 B 0x10 IMM 0 ABS 0x20 IND 0x40 MEM 0x60 LEN 0x80 MSH 0xa0
ADD 0 SUB 0x10 MUL 0x20 DIV 0x30 OR 0x40 AND 0x50 LSH 0x60 RSH 0x70 NEG 0x80 MOD 0x90 XOR 0xa0
JA 0 JEQ 0x10 JGT 0x20 JGE 0x30 JSET 0x40 K 0 X 8
"""

_EMPTY = """
uapi/linux/bpf.h uapi/linux/if_packet.h uapi/linux/ptrace.h uapi/linux/if_ether.h uapi/linux/ip.h uapi/linux/in.h
uapi/linux/tcp.h uapi/linux/udp.h uapi/linux/icmp.h uapi/linux/ipv6.h linux/bpf.h linux/log2.h linux/string.h
linux/skbuff.h linux/netdevice.h linux/sched.h linux/ptrace.h linux/fs.h linux/in.h linux/ip.h linux/ipv6.h
linux/tcp.h linux/udp.h linux/icmp.h linux/if_ether.h linux/if_vlan.h linux/if_arp.h linux/if_packet.h linux/in6.h
linux/socket.h linux/kernel.h linux/errno.h linux/interrupt.h linux/kvm_host.h linux/eventfd.h net/sock.h
net/inet_sock.h net/tcp.h net/ip.h net/ipv6.h net/sch_generic.h net/net_namespace.h net/neighbour.h
"""
"""Headers that BCC includes, or a source for real headers. They are empty: everything is in kernel_types.h."""

_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV = 0x4000, 1 << 18, 2, 4
_PREFIX = "netconsole-types-"
_NAME = re.compile(_PREFIX + r"(\d+)-\w+")
_PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/mnt")


def files(kernel_types: str, release: str = "", machine: str = "", page: int = 0) -> Dict[str, str]:
    """Path → text of all files of the tree, with this text of kernel types.

    ``machine`` and ``page`` (bytes) are those of the kernel that is compiled for. Without them it is this one.
    """
    arch, config = _ARCH.get(machine or os.uname().machine, _ARCH["x86_64"])
    page = page or os.sysconf("SC_PAGE_SIZE")
    tree = {"include/" + name: "" for name in _EMPTY.split()}
    tree["include/linux/types.h"] = _types_h()
    tree["include/uapi/linux/types.h"] = "#include <linux/types.h>\n"
    tree["include/linux/kconfig.h"] = _KCONFIG_H.format(config=config)
    tree["include/linux/version.h"] = _VERSION_H.format(code=version_code(release or os.uname().release))
    tree["include/linux/bpf_common.h"] = tree["include/uapi/linux/bpf_common.h"] = _bpf_common_h()
    tree["arch/{}/include/asm/page.h".format(arch)] = _PAGE_H.format(page=page, shift=page.bit_length() - 1)
    tree["include/kernel_types.h"] = kernel_types
    return tree


def architecture(machine: str) -> str:
    """What the kernel's sources call a machine: "arm64" for "aarch64"."""
    return _ARCH.get(machine, _ARCH["x86_64"])[0]


def type_names() -> Set[str]:
    """Names that linux/types.h of the tree defines."""
    return {name for _, names in _typedefs() for name in names} | {"true", "false", "NULL"}


def write(directory: str, tree: Dict[str, str]) -> None:
    """Writes the tree into a directory. Raises OSError."""
    for path, text in tree.items():
        path = os.path.join(directory, path)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "w") as file:
            file.write(text)


def private_directory() -> Tuple[str, bool]:
    """A directory for the tree, and whether it vanishes with this process.

    Where possible it is a tmpfs that only this process sees, in its own mount namespace. Then not even kill -9 leaves
    anything behind. Else it is a directory of mode 0700 that has to be removed. Raises OSError.
    """
    import tempfile  # 1 MB that a collector which compiles nothing does without

    libc = ctypes.CDLL(None, use_errno=True)
    place = next((p for p in _PLACES if os.path.isdir(p) and not any(part.startswith(p) for part in sys.path)), None)
    if place and libc.unshare(_CLONE_NEWNS) == 0:
        private = libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
        flags = _MS_NOSUID | _MS_NODEV
        if private and libc.mount(b"netconsole", place.encode(), b"tmpfs", flags, b"mode=0700,size=16m") == 0:
            return tempfile.mkdtemp(prefix=_PREFIX, dir=place), True
    return tempfile.mkdtemp(prefix="{}{}-".format(_PREFIX, os.getpid())), False


def remove(directory: str) -> None:
    """Removes a tree. What cannot be removed stays."""
    for path, directories, names in os.walk(directory, topdown=False):
        for name in names:
            _quietly(os.unlink, os.path.join(path, name))
        for name in directories:
            _quietly(os.rmdir, os.path.join(path, name))
    _quietly(os.rmdir, directory)


def sweep() -> None:
    """Removes the trees of workers that were killed, where a tree could not be private."""
    import tempfile

    place = tempfile.gettempdir()
    for name in os.listdir(place):
        match = _NAME.fullmatch(name)
        path = os.path.join(place, name)
        if match and not os.path.exists("/proc/" + match.group(1)) and _is_ours(path):
            remove(path)


def _is_ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _quietly(call: Callable[[str], None], path: str) -> None:
    try:
        call(path)
    except OSError:
        pass


def version_code(release: str) -> int:
    """LINUX_VERSION_CODE of a release such as "6.1.0-56-amd64". The last part is at most 255, as in the kernel."""
    numbers = [int(number) for number in re.findall(r"\d+", release)[:3]] + [0, 0, 0]
    return (numbers[0] << 16) + (numbers[1] << 8) + min(numbers[2], 255)


def _typedefs() -> List[Tuple[str, List[str]]]:
    """C type, and the names for it. The words that C itself knows are the C type."""
    words_of_c = ("unsigned", "signed", "char", "short", "int", "long", "_Bool")
    result = []
    for line in _TYPEDEFS.strip().splitlines():
        words = line.split()
        first = next(number for number, word in enumerate(words) if word not in words_of_c)
        result.append((" ".join(words[:first]), words[first:]))
    return result


def _types_h() -> str:
    lines = ["#ifndef NETCONSOLE_TYPES_H", "#define NETCONSOLE_TYPES_H"]
    lines += ["typedef {} {};".format(base, name) for base, names in _typedefs() for name in names]
    return "\n".join(lines) + _TYPES_H_END


def _bpf_common_h() -> str:
    words = _BPF_COMMON.split()
    pairs = zip(words[::2], words[1::2])
    return _BPF_COMMON_H.format(constants="".join("#define BPF_{} {}\n".format(name, value) for name, value in pairs))
