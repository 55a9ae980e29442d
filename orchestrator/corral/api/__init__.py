"""The public Python API: `corral.Sandbox`, `corral.Agent`, `corral.Pool`. `import corral` gives the same names, loaded
on use.
"""

from corral.agent.budget import Limits
from corral.api.agent import Agent, AgentResult
from corral.api.pool import Pool
from corral.api.result import CommandResult
from corral.api.sandbox import Sandbox
from corral.schema.events import Event
from corral.schema.patch import Patch
from corral.schema.policy import ApprovalAnswer, ApprovalRequest, Approver

__all__ = [
    "Agent",
    "AgentResult",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "CommandResult",
    "Event",
    "Limits",
    "Patch",
    "Pool",
    "Sandbox",
]
