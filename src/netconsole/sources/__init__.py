"""What the console reads itself, without BPF: interfaces, softnet counters, sockets that share a port, its own cost."""
