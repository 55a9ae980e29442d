"""The request to run a command, checked."""

from corral_toolbox.channel import wire
from corral_toolbox.kernel.terminal import MAX_SIDE

_MAX_ARGUMENT = (128 << 10) - 1
"""The kernel's limit for one argument (MAX_ARG_STRLEN), its NUL included."""
_MAX_KEPT = 160 << 10
"""Head and tail of two streams, base64, stay below MAX_CONTROL_BYTES: 4 * 160 KiB * 4 / 3 = 853 KiB."""


class ExecRequest:
    """A checked corral_protocol.message.Exec."""

    def __init__(self, raw: wire.Message) -> None:
        params = wire.Params(raw)
        self.argv = params.take_names("argv")
        self.shell = params.take_bool("shell", False)
        self.cwd = params.take_name("cwd", "")
        self.env = params.take_env("env")
        self.timeout_s = params.take_seconds("timeout_s", None)
        self.stdin = params.take_int("stdin", 0, 0, 0xFFFFFFFF)
        self.stdout = params.take_int("stdout", 0, 0, 0xFFFFFFFF)
        self.stderr = params.take_int("stderr", 0, 0, 0xFFFFFFFF)
        self.merge_stderr = params.take_bool("merge_stderr", False)
        self.head_bytes = params.take_int("head_bytes", 16 << 10, 0, _MAX_KEPT)
        self.tail_bytes = params.take_int("tail_bytes", 16 << 10, 0, _MAX_KEPT)
        self.stream_limit = params.take_int("stream_limit", 64 << 20, -1, wire.MAX_ID)
        self.kill_background = params.take_bool("kill_background", False)
        self.umask = params.take_int("umask", 0o022, 0, 0o777)
        self.hold = params.take_bool("hold", False)
        self.rows = params.take_int("rows", 0, 0, MAX_SIDE)
        self.columns = params.take_int("columns", 0, 0, MAX_SIDE)
        params.done()
        if bool(self.rows) != bool(self.columns) or (self.rows and not self.merge_stderr):
            raise wire.Refusal(wire.INVALID_ARGUMENT, "a terminal has rows and columns, and one stream of output")
        if not self.argv or (self.shell and len(self.argv) != 1) or not self.argv[0]:
            raise wire.Refusal(wire.INVALID_ARGUMENT, "argv must name a program, or hold exactly one command line")
        for argument in self.argv:
            if len(argument) > _MAX_ARGUMENT:
                raise wire.Refusal(wire.TOO_LARGE, f"an argument of {len(argument)} bytes; at most {_MAX_ARGUMENT}")
        streams = [stream for stream in (self.stdin, self.stdout, self.stderr) if stream]
        if len(set(streams)) != len(streams) or (self.merge_stderr and self.stderr):
            raise wire.Refusal(wire.INVALID_ARGUMENT, "stdin, stdout and stderr need streams of their own")
