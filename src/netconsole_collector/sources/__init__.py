"""What is read without BPF: counters that the kernel has anyway. They become frames like those of probes."""
