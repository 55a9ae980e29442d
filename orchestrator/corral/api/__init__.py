"""The public Python API: `corral.Sandbox`, `corral.Agent`, `corral.Pool`. `import corral` gives the same names, loaded
on use.
"""

from corral.agent.budget import Limits
from corral.api.agent import Agent, AgentResult
from corral.api.job import Job, JobOutput
from corral.api.pool import Pool
from corral.api.result import CommandResult, SearchResult
from corral.api.sandbox import Sandbox
from corral.sandbox.base import BoxInfo
from corral.schema.events import Event
from corral.schema.patch import Patch
from corral.schema.policy import ApprovalAnswer, ApprovalRequest, Approver
from corral.schema.resources import BoxResources, CallResources, OwnResources, RunResources
from corral_protocol.message import FileChanged, FileContent, ListEntry, Listing, PatchResult

__all__ = [
    "Agent",
    "AgentResult",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "BoxInfo",
    "BoxResources",
    "CallResources",
    "CommandResult",
    "Event",
    "FileChanged",
    "FileContent",
    "Job",
    "JobOutput",
    "Limits",
    "ListEntry",
    "Listing",
    "OwnResources",
    "Patch",
    "PatchResult",
    "Pool",
    "RunResources",
    "Sandbox",
    "SearchResult",
]
