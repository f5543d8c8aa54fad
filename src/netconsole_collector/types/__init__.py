"""The kernel's types as C source for BCC, from BTF or from headers."""
