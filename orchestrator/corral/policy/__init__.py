"""Policy: pure decisions over typed requests. Nothing here runs a tool or asks a person by itself."""

from corral.policy.approval import StaticApprover
from corral.policy.decider import SessionPolicy
from corral.policy.engine import PolicyEngine
from corral.policy.network import HostRule, NetworkPolicy, load_profile, parse_host_rule
from corral.policy.source import PolicyLayer, Rule

__all__ = [
    "HostRule",
    "NetworkPolicy",
    "PolicyEngine",
    "PolicyLayer",
    "Rule",
    "SessionPolicy",
    "StaticApprover",
    "load_profile",
    "parse_host_rule",
]
