"""Run a repository's tests in a box and print what they changed.

    python examples/sandbox.py [REPOSITORY] [COMMAND]

Nothing reaches the repository, whatever its tests do. Without arguments it takes the small repository beside it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from corral import CorralError, Sandbox
from corral.schema.path import show_path
from corral.schema.visible import visible

HERE = Path(__file__).parent


async def run_tests(repository: Path, command: str) -> int:
    async with Sandbox(repository, goal=f"run {command}") as box:
        result = await box.shell(command, timeout_s=600)
        # The box's words are escaped before a terminal sees them.
        print(visible(result.stderr[-2000:] or result.stdout[-2000:], keep="\n"))
        print(f"{command}: exit code {result.exit_code} in {result.duration_s:.1f} s")
    if not box.patch.files:
        print("nothing changed")
    for file in box.patch.files:
        print(f"{file.action.value} {show_path(file.path)} +{file.added} -{file.removed}")
    print(f"record: {box.record_path}")
    return result.exit_code


def main() -> int:
    repository = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "demo" / "repo"
    command = sys.argv[2] if len(sys.argv) > 2 else "python3 -m unittest"
    try:
        return asyncio.run(run_tests(repository, command))
    except CorralError as error:
        print(f"{error.message}\n  hint: {error.hint}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
