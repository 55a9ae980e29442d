"""What the kernel is asked directly: mounts through ctypes, id maps, the mount table, link directories."""
