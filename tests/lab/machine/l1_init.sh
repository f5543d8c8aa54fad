#!/bin/sh
# First process of the hypervisor, from the initramfs (busybox): gets the machine's file system in, read-only, and puts
# a writable layer in memory over it. Written before it by initramfs.py: SHARE CHECKOUT VENV TREE VERSION

/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod "$module" || echo "lab: cannot load $module"; done

share() { # TAG DIRECTORY CACHE
    case $SHARE in
    9p) mount -t 9p -o "ro,trans=virtio,version=9p2000.L,msize=1048576,cache=$3" "$1" "$2" ;;
    virtiofs) mount -t virtiofs -o ro "$1" "$2" ;;
    esac
}

mkdir /lower /memory /new
share root /lower loose || echo "lab: cannot mount the root file system"
mount -t tmpfs -o size=75% memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work root /new

for directory in proc sys dev; do mount --move /$directory /new/$directory; done
mount -t tmpfs run /new/run
# Not the overlay: it has no O_TMPFILE on kernels before 6.3.
mount -t tmpfs tmp /new/tmp

# Files of the project change while the lab runs, and those of the root share are not looked at twice.
mkdir -p "/new$CHECKOUT"
share checkout "/new$CHECKOUT" none
mkdir -p "/new$VENV"
mount --bind "/lower$VENV" "/new$VENV"

mkdir -p /new/run/kernel /new/lib/modules "/new/lib/modules/$VERSION"
mount --bind "/lower$TREE" /new/run/kernel
mount --bind "/lower$TREE/lib/modules/$VERSION" "/new/lib/modules/$VERSION"
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts -o ptmxmode=666 devpts /new/dev/pts
mount -t tmpfs shm /new/dev/shm
mount -t tracefs tracefs /new/sys/kernel/tracing
mount -t debugfs debugfs /new/sys/kernel/debug
mount -t bpf bpf /new/sys/fs/bpf
mount -t cgroup2 cgroup2 /new/sys/fs/cgroup

cat >/new/run/lab_start <<'END'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=xterm-256color
# What is compiled inside stays in the machine's memory; compiled.py brings the rest.
export XDG_CACHE_HOME=/run/cache
# As systemd does: a namespace that gets its name later is seen by who has mounts of his own (on_a_still_checkout).
mount --make-rshared /
hostname hypervisor
ip link set lo up
# The shell stays the first process: it reaps what other processes leave behind.
/usr/bin/python3 "$CHECKOUT/tests/lab/machine/inside.py"
echo "lab: the command server has ended"
sleep 1 # until the serial line has said so
busybox poweroff -f
END
export CHECKOUT
exec switch_root /new /bin/sh /run/lab_start
