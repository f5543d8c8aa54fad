#!/bin/sh
# Makes a checkout ready: system packages (only those that are missing) and the virtual environment.
# usage: tools/setup.sh run|test|lab|fuzz
set -eu
cd "$(dirname "$0")/.."
purpose=$1
venv=.venv

say() { printf 'setup: %s\n' "$*" >&2; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1; then sudo "$@"
    else say "need root for: $*"; return 1
    fi
}

touch_too=
missing= missing_rpm=
need() { # need DEB RPM COMMAND...: note the package (its name in Debian, in Fedora) as missing unless the command succeeds
    deb=$1 rpm=$2; shift 2
    "$@" >/dev/null 2>&1 || { missing="$missing $deb"; missing_rpm="$missing_rpm $rpm"; }
}

# BCC belongs to the system's interpreter, not to the one that runs the console.
need python3-bpfcc python3-bcc /usr/bin/python3 -c 'import bcc'
need iproute2 iproute command -v ip
if [ -z "${PYTHON:-}" ]; then
    PYTHON=python3
    # A python3 that cannot make a virtual environment needs Debian's package for it.
    need python3-venv python3-libs "$PYTHON" -c 'import ensurepip, venv'
fi
if [ "$purpose" = lab ]; then # all that is for tests, and what `make test` does without
    need qemu-system-arm qemu-system-aarch64 command -v qemu-system-aarch64
    purpose=test
    touch_too=$venv/.ready-lab
fi
if [ "$purpose" = test ]; then
    need qemu-system-x86 qemu-system-x86 command -v qemu-system-x86_64
    need openvswitch-switch openvswitch command -v ovs-vswitchd
    need busybox-static busybox busybox true
    need kmod kmod command -v modprobe
    need cpio cpio command -v cpio
    need zstd zstd command -v zstd
    need xz-utils xz command -v xz
    need tmux tmux command -v tmux
    need openssh-server openssh-server test -x /usr/sbin/sshd
    need dmsetup device-mapper test -x /usr/sbin/dmsetup
    need fish fish command -v fish
    need tcsh tcsh command -v tcsh
    need nftables nftables command -v nft
    need iptables iptables-legacy command -v iptables-legacy
    need dwarves dwarves command -v pahole
    need bpftool bpftool command -v bpftool
    need chromium chromium command -v chromium
fi

if [ -n "$missing" ] && ! command -v apt-get >/dev/null 2>&1; then
    # Not tried on a system with RPM packages: so it is said, and not done.
    if command -v dnf >/dev/null 2>&1; then say "missing: dnf install$missing_rpm"; else say "missing (names of Debian's packages):$missing"; fi
    say "going on without (netconsole doctor says what that costs)"
elif [ -n "$missing" ]; then
    say "installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    # A service that a package would start is of no use here, and a running switch is not ours to touch.
    # shellcheck disable=SC2086
    if ! { as_root apt-get update -qq && as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends $missing >/dev/null; } >&2; then
        say "could not install$missing; going on without (netconsole doctor says what that costs)"
    fi
fi

if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    say "the console needs Python 3.10 or later, $PYTHON is older: set PYTHON to one"
    exit 3
fi
if [ ! -x $venv/bin/pip ]; then
    rm -rf $venv
    "$PYTHON" -m venv $venv
fi
extra=
[ "$purpose" = test ] && extra='[dev]'
[ "$purpose" = fuzz ] && extra='[dev,fuzz]'
say "installing Python packages"
PIP_CONSTRAINT=$PWD/constraints.txt $venv/bin/pip install --quiet --disable-pip-version-check -e ".$extra"
# Whoever starts the console or the collector first would do it, and again each time if the environment keeps it from writing.
env -u PYTHONDONTWRITEBYTECODE $venv/bin/python -m compileall -q src
env -u PYTHONDONTWRITEBYTECODE /usr/bin/python3 -m compileall -q src/netconsole_collector || :
touch "$venv/.ready-$purpose"
[ "$purpose" = test ] && touch $venv/.ready-run $touch_too
exit 0
