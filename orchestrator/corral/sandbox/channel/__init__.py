"""The host's end of the toolbox channel: it decodes and trusts nothing. A broken rule ends the box, nothing else."""

from corral.sandbox.channel.call import keep_alive, run_call
from corral.sandbox.channel.operation import BoxOperations, Caller
from corral.sandbox.channel.rpc import Channel, open_channel

__all__ = ["BoxOperations", "Caller", "Channel", "keep_alive", "open_channel", "run_call"]
