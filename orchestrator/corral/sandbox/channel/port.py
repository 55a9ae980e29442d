"""Ports: the tunnel's own in the box, with the variables by which programs find them, and ports of the box for us."""

from __future__ import annotations

import asyncio
import copy

from corral.errors import SandboxError, SandboxProtocolError, ToolError
from corral.sandbox.channel.call import run_call
from corral.sandbox.channel.rpc import Channel
from corral.sandbox.channel.tunnel import BoxStream, Serve
from corral.sandbox.channel.wire import Empty
from corral_protocol.message import Method, TunnelDial, TunnelListen, TunnelPorts

HTTP, SOCKS = 0, 1
"""What the tunnel's ports are for, by their place in TunnelPorts.ports."""
_LIMIT_S = 10.0
_LOCAL = "localhost,127.0.0.1,::1"


async def open_tunnel(channel: Channel, serve: Serve, max_streams: int) -> dict[str, str]:
    """Let the box open streams; returns the variables by which its programs do so. Raises ToolError, SandboxError."""
    channel.tunnel.enable(serve, 2, max_streams)
    opened = await run_call(channel, Method.LISTEN, TunnelListen(2, max_streams), TunnelPorts, limit_s=_LIMIT_S)
    if len(opened.ports) != 2 or not all(0 < port < 1 << 16 for port in opened.ports):
        error = SandboxProtocolError("the box did not say which ports it listens on")
        channel.end(error)
        raise error
    return build_variables(opened.ports[HTTP], opened.ports[SOCKS])


def build_variables(http: int, socks: int) -> dict[str, str]:
    """What pip, npm, git, curl, cargo, go and most libraries read."""
    proxy = f"http://127.0.0.1:{http}"
    both = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": _LOCAL}
    return {
        **both,
        **{name.lower(): value for name, value in both.items()},
        "NODE_USE_ENV_PROXY": "1",  # Node's own fetch() reads the others only then
        # Not ALL_PROXY: libraries that lack an extra for SOCKS fail at the sight of it.
        "CORRAL_SOCKS_PROXY": f"socks5h://127.0.0.1:{socks}",
    }


async def dial(channel: Channel, port: int) -> BoxStream:
    """A connection to a port of the box's loopback. Raises ToolError when nobody listens there."""
    if channel.is_ending:
        raise copy.copy(await asyncio.shield(channel.ended))
    stream = channel.tunnel.prepare_dial()
    answer = channel.send_request(Method.DIAL, TunnelDial(stream.number, port), Empty, {}, "").answer

    def give_up(_: asyncio.Future[Empty]) -> None:
        if answer.exception() is None:
            stream.abort()
        else:
            channel.tunnel.forget(stream)

    try:
        await asyncio.shield(answer)
    except asyncio.CancelledError:
        # Not before the answer: data on a stream that the box has opened and we have forgotten would end the box.
        answer.add_done_callback(give_up)
        raise
    except (ToolError, SandboxError):
        channel.tunnel.forget(stream)
        raise
    return stream
