"""What the console reads itself, without BPF: interfaces, sockets that share a port, its own cost."""
