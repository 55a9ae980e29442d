"""The box as a whole: what is in it now, and what it has used since it began."""

import os

from corral_toolbox.kernel import counter, process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_toolbox.channel import wire
    from corral_toolbox.server import Server


def build_stats(server: "Server") -> "wire.Message":
    """The answer to `stats`."""
    table = process.scan_processes()
    own = [os.getpid(), *server.population.find_own(table)]
    user_s, system_s = counter.read_cpu()
    programs, written = server.used
    for call in server.lingering.values():
        programs, written = programs + call.used[4], written + call.used[3]
    return {
        "processes": len(table),
        "zombies": sum(state == "Z" for _, state in table.values()),
        "calls": len(server.calls),
        "rss": counter.read_rss(),
        "pss": counter.read_pss(own),
        "memory_current": counter.read_memory_current(),
        "memory_peak": counter.read_memory_peak(),
        "oom_kills": server.counters.read_oom_kills(),
        "pids_refused": server.counters.read_pids_refused(),
        "user_s": round(user_s, 6),
        "system_s": round(system_s, 6),
        "tasks_peak": counter.read_tasks_peak(),
        "programs": programs,
        "written_bytes": written,
        "full": server.find_full(),
    }
