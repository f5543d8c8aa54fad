"""The kernel's interfaces: bpf(2), attachments, event buffers, statistics, clocks."""
