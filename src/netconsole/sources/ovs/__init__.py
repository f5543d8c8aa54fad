"""What Open vSwitch tells about itself: control socket and netlink."""
