"""A box as a program of one's own uses it: find, change, test, look at what it cost, take the patch.

    python examples/session.py REPOSITORY PATTERN REPLACEMENT [COMMAND]

Replaces a text in every file that has it, runs the command, and writes session.diff here when that succeeds.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from corral import CorralError, Sandbox, ToolError
from corral.schema.path import show_path
from corral.schema.visible import visible


async def replace(repository: Path, pattern: str, replacement: str, command: str) -> int:
    # No host can be reached until the program says so.
    async with Sandbox(repository, goal=f"replace {pattern!r}", network="none") as box:
        found = await box.search(pattern, literal=True, files_only=True, limit=1000)
        for path in found.lines:
            try:
                changed = await box.edit_file(path, pattern, replacement, replace_all=True)
            except ToolError as error:
                print(f"{visible(path)}: {visible(error.message)}")
            else:
                print(f"{visible(path)}: {changed.replaced} replaced")
        try:
            box.network.allow("example.org:443")  # what the command may need; connections are judged one by one
            result = await box.shell(command, timeout_s=600)
        finally:
            box.network.revoke("example.org:443")
        used = result.resources
        print(f"{command}: exit code {result.exit_code}, {used.user_s + used.system_s:.1f} s of processor time")
        print(f"{used.programs} processes, {used.max_rss_bytes >> 20} MiB in the largest")
        if result.ok:
            patch = await box.export("session.diff")
            print(f"session.diff: {', '.join(show_path(file.path) for file in patch.files) or 'nothing changed'}")
    whole = await box.resources()
    print(f"{whole.wall_s:.1f} s in all, {whole.network_in_bytes} bytes from the network, run {box.run_id}")
    return result.exit_code


def main() -> int:
    if len(sys.argv) < 4:
        print(__doc__)
        return 2
    repository, pattern, replacement, *command = sys.argv[1:]
    try:
        return asyncio.run(replace(Path(repository), pattern, replacement, *(command or ["python3 -m unittest"])))
    except CorralError as error:
        print(f"{error.message}\n  hint: {error.hint}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
