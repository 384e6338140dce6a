"""TPU jobs, and memory, traffic and time of a step before one is started."""
