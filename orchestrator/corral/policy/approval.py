"""Approvers that ask nobody."""

from __future__ import annotations

from corral.schema.policy import ApprovalAnswer, ApprovalRequest


class StaticApprover:
    """Always the same answer: no, unless a test or an embedding program says yes on purpose."""

    def __init__(self, *, approved: bool = False, by: str = "static", reason: str = "nobody is there to ask") -> None:
        self._approved = approved
        self._by = by
        self._reason = reason

    async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(approved=self._approved, digest=request.digest, reason=self._reason, by=self._by)
