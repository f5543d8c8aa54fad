"""The pane of the queues between tap and guest."""
