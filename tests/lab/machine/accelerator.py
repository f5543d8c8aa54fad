"""How QEMU emulates the machine's CPUs: a thread for each, or one for all where several threads give wrong results."""

from __future__ import annotations

import re
import subprocess

FIRST_SOUND_VERSION = (8, 1)
SOUND, SLOW = "tcg,thread=multi", "tcg,thread=single"


def accelerator(qemu: str) -> str:
    """The value of -accel for this QEMU.

    Up to 8.0 a thread reads code and translates it, and only then asks to be told of changes to it (mended by commit
    deba78709ae8, "accel/tcg: Always lock pages before translation"). A Linux kernel changes its code whenever a
    tracepoint, a kprobe or a static key is turned on or off, and puts a breakpoint there meanwhile. Another thread that
    translates the place at that moment may keep the breakpoint for ever: each CPU that comes by is caught in it (a soft
    lockup: kprobe_int3_handler finds no breakpoint there and goes back to it), or, where a kprobe by ftrace stands, the
    kernel takes it for a kprobe of its own and jumps to that one's copy of the instruction, which is none: address 0.
    A processor does not do this. No change that is made inside avoids it: attaching is what the lab is for.
    """
    said = subprocess.run([qemu, "--version"], capture_output=True, text=True, check=True).stdout
    return SOUND if version_of(said) >= FIRST_SOUND_VERSION else SLOW


def version_of(said: str) -> tuple[int, int]:
    """Major and minor version from what `--version` prints; (0, 0) when it prints something else."""
    found = re.search(r"\bversion (\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)
