"""On what it was measured."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version

from docker import APIClient


@dataclass(frozen=True)
class Machine:
    cores: int
    processor: str
    memory_gb: float
    kernel: str
    engine: str
    cgroup: str
    python: str
    corral: str
    load: float
    """Of the last minute, before the first measurement."""

    def describe(self) -> str:
        return (
            f"{self.cores} cores ({self.processor}), {self.memory_gb:.0f} GB, kernel {self.kernel}, "
            f"Docker {self.engine} (cgroup v{self.cgroup}), Python {self.python}, corral {self.corral}; "
            f"load average {self.load:.1f} at the start"
        )


def look_at_machine() -> Machine:
    client = APIClient(version="1.41")
    try:
        info = client.info()
    finally:
        client.close()
    return Machine(
        cores=os.cpu_count() or 1,
        processor=_find_processor(),
        memory_gb=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9,
        kernel=".".join(platform.release().split(".")[:2]),
        engine=info["ServerVersion"],
        cgroup=str(info.get("CgroupVersion", "1")),
        python=".".join(map(str, sys.version_info[:3])),
        corral=version("corral"),
        load=os.getloadavg()[0],
    )


def _find_processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return " ".join(value.split())
    return platform.machine()
