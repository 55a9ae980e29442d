"""Supervisors as the first process sees them: spares ready for the next call, and who belongs to which call."""

import _socket
import marshal

from corral_toolbox.forked import supervisor
from corral_toolbox.forked.child import fork_into

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_toolbox.call import Call
    from corral_toolbox.kernel.oom_score import OomScore
    from corral_toolbox.loop import Loop
    from corral_toolbox.server import Box

_EPOLLIN = 1
_RETRY_S = 0.5


class Supervisor:
    """One supervisor process and the socket to it."""

    def __init__(self, pid: int, control: _socket.socket) -> None:
        self.pid = pid
        self.control = control
        self.call: Call | None = None
        self.is_ready = False
        """It waits for a call; before, a call waits for it."""
        self.has_started = False
        """The command of its call exists."""
        self.is_held = False
        """Nor will it, before the host says so."""
        self.is_open = True


class Pool:
    def __init__(self, loop: "Loop", box: "Box", open_files: int, score: "OomScore") -> None:
        self._loop = loop
        self._score = score
        self._target = box.spares
        self._wanted = box.spares
        self._facts = open_files, box.uid, box.gid, not box.why_unwatched, box.has_trees
        self._spares: list[Supervisor] = []
        self._by_pid: dict[int, Supervisor] = {}
        self._is_refilling = False

    @property
    def pids(self) -> set[int]:
        return set(self._by_pid)

    @property
    def is_settled(self) -> bool:
        """Every call has its process: none is about to appear."""
        return all(item.has_started or item.is_held for item in self._by_pid.values() if item.call is not None)

    def take(self) -> Supervisor:
        """A supervisor for a call, the readiest one. Raises OSError when none is left and none can be forked."""
        spares = self._spares
        self._wanted = self._target
        if not spares:
            self._spawn()
        place = next((place for place, spare in enumerate(spares) if spare.is_ready), 0)
        spares[place].has_started = False
        return spares.pop(place)

    def refill(self) -> None:
        """Ask for the spares that are wanted, made when nothing else is to do."""
        if not self._is_refilling and len(self._spares) < self._wanted:
            self._is_refilling = True
            self._loop.when_idle(self._refill_one)

    def _refill_one(self) -> None:
        self._is_refilling = False
        if len(self._spares) < self._wanted:
            try:
                self._spawn()
            except OSError:
                self._retry_later()
                return
        self.refill()

    def _retry_later(self) -> None:
        if not self._is_refilling:
            self._is_refilling = True
            self._loop.after(_RETRY_S, self._refill_one)

    def _spawn(self) -> None:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        # SECURITY: inherited, since nobody below may write it any more (test_exec_isolation.py).
        self._score.set_victim()
        try:
            pid = fork_into(theirs.fileno(), lambda: supervisor.run_supervisor(*self._facts))
        except OSError:
            ours.close()
            raise
        finally:
            self._score.set_own()
            theirs.close()
        ours.setblocking(False)
        spare = Supervisor(pid, ours)
        self._by_pid[pid] = spare
        self._spares.append(spare)
        self._loop.watch(ours.fileno(), _EPOLLIN, lambda _: self._read(spare))

    def renew(self) -> None:
        """At rest one spare is enough, a new one; the next call makes the others, as it runs."""
        self._wanted = 1
        old = list(self._spares)
        try:
            self._spawn()
        except OSError:
            old = old[1:]
        for spare in old:
            self.discard(spare)

    def discard(self, item: Supervisor) -> None:
        """Stop listening; a supervisor that waits for a call ends by itself."""
        if item in self._spares:
            self._spares.remove(item)
        if item.is_open:
            item.is_open = False
            self._loop.unwatch(item.control.fileno())
            item.control.close()

    def reaped(self, pid: int) -> bool:
        """A child of the first process has ended; True when a call was below it, whose processes are orphans now."""
        item = self._by_pid.pop(pid, None)
        if item is None:
            return False
        if item.is_open:
            self._read(item)
        self.discard(item)
        call, item.call = item.call, None
        if call is not None:
            call.on_gone()
        self.refill()
        return call is not None

    def _read(self, item: Supervisor) -> None:
        while item.is_open:
            try:
                data = item.control.recv(64 << 10)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                # Its own end is told by wait; a socket without a process behind it is of no more use.
                self.discard(item)
                self.refill()
                return
            self._follow(item, *marshal.loads(data))  # noqa: S302  # written by our own forks

    def _follow(self, item: Supervisor, kind: str, *facts: object) -> None:
        call = item.call
        if kind == supervisor.READY:
            item.is_ready = True
        elif kind == supervisor.BROKEN:
            item.call = None
            self.discard(item)
            if call is not None:
                call.on_broken(*facts)  # type: ignore[arg-type]  # as supervisor._tell wrote them
            self._retry_later()
        elif call is None:
            return
        elif kind == supervisor.STARTED:
            item.has_started = True
            call.on_started(*facts)  # type: ignore[arg-type]
        elif kind == supervisor.NOTICE:
            call.notices.append(str(facts[0]))
        elif kind == supervisor.NOT_STARTED:
            call.on_not_started(*facts)  # type: ignore[arg-type]
        elif kind == supervisor.EVENTS:
            call.on_events(item.pid, *facts)  # type: ignore[arg-type]
        elif kind == supervisor.ENDED:
            batch, *facts = facts  # type: ignore[assignment]
            call.on_events(item.pid, batch)  # type: ignore[arg-type]
            if not facts[1]:
                self._release(item)
            call.on_ended(*facts)  # type: ignore[arg-type]
        elif kind == supervisor.GONE:
            item.call = None
            call.on_events(item.pid, facts[0])  # type: ignore[arg-type]
            call.on_gone(*facts[1:])  # type: ignore[arg-type]

    def _release(self, item: Supervisor) -> None:
        """Its call left nothing behind: it waits for the next one already."""
        item.call = None
        if len(self._spares) < self._target:
            self._spares.append(item)
        else:
            self.discard(item)
