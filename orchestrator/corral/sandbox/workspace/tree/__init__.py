"""Walking trees that may hold anything: by descriptor, never following a link, bounded."""
