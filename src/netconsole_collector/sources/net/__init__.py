"""What the kernel counts of the network by itself: links, queues, protocols, sockets, and the drivers of NICs."""
