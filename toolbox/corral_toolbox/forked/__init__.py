"""What runs in the processes that the first process forks: supervisors of calls, workers for files. Blocking code."""
