"""Orders of the work: who does what in which order, and what follows from that."""
