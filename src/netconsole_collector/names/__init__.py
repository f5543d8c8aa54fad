"""What people call what the kernel numbers: processes, VMs, namespaces, symbols, drop reasons."""
