"""Let an agent mend a repository, and print what it did and what it would change.

    python examples/agent.py [REPOSITORY]

Without a configured model (CORRAL_MODEL with OPENAI_API_KEY or OPENAI_BASE_URL) the answers are scripted, and they fit
the small repository beside this file only.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from corral import Agent, CorralError, Event, Limits
from corral.schema.events import ModelAnswered, ToolFinished
from corral.schema.visible import visible

DEMO = Path(__file__).parent / "demo"
TASK = "The tests fail. Find out why and mend the code, not the tests."


def show(event: Event) -> None:
    """The run as it happens: an event is called in the order it is written into the record."""
    match event.payload:
        case ModelAnswered(text=text) if text.strip():
            print(f"says  {visible(text.strip(), limit=200)}")
        case ToolFinished() as done:
            print(f"calls {visible(done.tool)}: {visible(done.summary, limit=100)}")
        case _:
            pass


async def mend(repository: Path) -> int:
    model = os.environ.get("CORRAL_MODEL") or f"scripted:{DEMO / 'script.json'}"
    print(f"model: {model}")
    agent = Agent(
        TASK,
        repository,
        model=model,
        until="python3 -m unittest",
        limits=Limits(steps=20, cost_usd=0.50),
        on_event=show,
    )
    result = await agent.run()
    print(f"{result.stop_reason} after {result.steps} steps: {visible(result.summary, limit=500)}")
    if result.error is not None:
        print(f"error: {result.error.message}", file=sys.stderr)
    if result.patch_file is not None:
        print(visible(result.patch_file.read_bytes(), keep="\n\t"))
        print(f"to apply it: corral apply {result.run_id}")
    return result.exit_code


def main() -> int:
    repository = Path(sys.argv[1]) if len(sys.argv) > 1 else DEMO / "repo"
    try:
        return asyncio.run(mend(repository))
    except CorralError as error:
        print(f"{error.message}\n  hint: {error.hint}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
