"""From a probe's source to programs in the kernel, in a process of its own."""
