"""What is known of virtual machines without BPF: their processes, threads, disks and limits."""
