#!/bin/sh
# First process of a virtual machine on the hypervisor (busybox): one network card, and a shell for commands on the second
# serial line. A command line is "TOKEN COMMAND"; its output is followed by a line "TOKEN STATUS".
# Written before it by l2.py: ADDRESS DOOR DOOR_PORT

/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod "$module" || echo "guest: cannot load $module"; done
# Nobody asked for router solicitations: a count holds what a test sends and nothing else.
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
ip link set lo up
ip address add "$ADDRESS" dev eth0
ip link set eth0 up
if [ -n "$DOOR" ]; then
    ip address add "$DOOR" dev eth1
    ip link set eth1 up
    /usr/bin/python3 -I /guest_door.py "$DOOR_PORT" &
fi

stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1 2>&1
echo "guest ready"
while read -r token command; do
    eval "$command"
    printf '\n%s %s\n' "$token" "$?"
done
poweroff -f
