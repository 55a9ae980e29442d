"""Two structures of the standard library by themselves: the packages that show them take 0.5 MB of every process."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from heapq import heapify, heappop, heappush
else:
    from _collections import deque
    from _heapq import heapify, heappop, heappush

__all__ = ["deque", "heapify", "heappop", "heappush"]
