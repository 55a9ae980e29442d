"""What the toolbox asks of the kernel: calls Python has no name for, the process table, the cgroup's counters."""
