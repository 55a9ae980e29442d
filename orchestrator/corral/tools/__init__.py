"""Tools: what a model may call, and the one pipeline every call goes through."""

from corral.tools.base import Recorder, ShellState, Tool, ToolContext, ToolTimeouts
from corral.tools.builtin import build_tools
from corral.tools.executor import ToolExecutor
from corral.tools.outputs import OutputStore
from corral.tools.registry import ToolRegistry
from corral.tools.result import render_result

__all__ = [
    "OutputStore",
    "Recorder",
    "ShellState",
    "Tool",
    "ToolContext",
    "ToolExecutor",
    "ToolRegistry",
    "ToolTimeouts",
    "build_tools",
    "render_result",
]
