#!/bin/sh
# First process of the machine of another architecture: its own root directory, read-only, with a writable layer in
# memory over it. Written before it by initramfs.py: CHECKOUT

/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod "$module" || echo "lab: cannot load $module"; done
mkdir /lower /memory /new
share() { mount -t 9p -o "ro,trans=virtio,version=9p2000.L,msize=1048576,cache=loose" "$1" "$2"; }
share root /lower || echo "lab: cannot mount the root file system"
mount -t tmpfs memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work root /new
mkdir -p /new/proc /new/sys /new/dev /new/run /new/tmp
for directory in proc sys dev; do mount --move /$directory /new/$directory; done
mount -t tmpfs run /new/run
mount -t tmpfs tmp /new/tmp
mkdir -p "/new$CHECKOUT"
share checkout "/new$CHECKOUT"
mount -t tracefs tracefs /new/sys/kernel/tracing
mount -t debugfs debugfs /new/sys/kernel/debug
cat >/new/run/lab_start <<'END'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
ip link set lo up
/usr/bin/python3 "$CHECKOUT/tests/lab/machine/inside.py"
echo "lab: the command server has ended"
sleep 1
busybox poweroff -f
END
export CHECKOUT
exec switch_root /new /bin/busybox sh /run/lab_start
