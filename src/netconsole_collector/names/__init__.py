"""Names for what the kernel numbers: processes, VMs, network namespaces, functions, drop reasons."""
