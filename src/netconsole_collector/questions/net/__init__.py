"""Questions about the network: which route, rule, queue, neighbour or socket takes part in a loss."""
