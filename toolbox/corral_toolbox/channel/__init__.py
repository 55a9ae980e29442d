"""The trust line as the box sees it: messages in and out, the queue to the host, streams under credit."""
