"""Reads Open vSwitch through its control socket and netlink."""
