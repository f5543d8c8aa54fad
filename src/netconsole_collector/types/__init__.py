"""The kernel's types, from BTF or from headers, as C that BCC compiles."""
