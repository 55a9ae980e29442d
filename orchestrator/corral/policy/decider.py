"""Policy as one session's tools see it: the engine, with the session's facts filled in."""

from __future__ import annotations

from corral.policy.engine import PolicyEngine
from corral.policy.request import build_request
from corral.schema.policy import Decision, PolicySession
from corral.schema.tools import ToolCall, ToolSpec


class SessionPolicy:
    """A `Decider` for one session."""

    def __init__(self, engine: PolicyEngine, session: PolicySession, *, mount_point: str = "/workspace") -> None:
        self.engine = engine
        self.session = session
        self.mount_point = mount_point

    def decide(self, spec: ToolSpec, call: ToolCall, *, approved: bool = False, checkpointed: bool = False) -> Decision:
        request = build_request(
            spec,
            call,
            self.session,
            mount_point=self.mount_point,
            approved=approved,
            checkpointed=checkpointed,
        )
        return self.engine.decide(request)
