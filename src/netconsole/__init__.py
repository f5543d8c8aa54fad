"""Live troubleshooting console for the network of virtualisation hosts."""

__version__ = "0.1.0"
