"""JSON-RPC messages as plain dicts, and the small checks the box makes on them.

The accelerators of `json` are used without the package: it costs a third of the start-up time. Names are those of
corral_protocol.message and corral_protocol.error, which tests/unit/toolbox/test_wire.py compares.
"""

import _json
from binascii import b2a_base64

from corral_protocol.framing import HEADER, MAX_CONTROL_BYTES
from corral_protocol.name import decode_name, encode_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

HELLO = "hello"
PING = "ping"
EXEC = "exec"
CANCEL = "exec.cancel"
GO = "exec.go"
SIGNAL = "exec.signal"
RESIZE = "exec.resize"
FREEZE = "freeze"
THAW = "thaw"
KILL_ALL = "kill_all"
STATS = "stats"
FETCH = "file.fetch"
STORE = "file.store"
TREE_PUT = "tree.put"
TREE_SCAN = "tree.scan"
FILE_METHODS = frozenset(
    ("file.read", "file.write", "file.edit", "file.patch", "file.move", "file.delete", "file.list")
) | {FETCH, STORE, TREE_PUT, TREE_SCAN}
SENDING = frozenset((FETCH, TREE_SCAN))
"""File methods that send bytes to the host on the stream they are given."""
RECEIVING = frozenset((STORE, TREE_PUT))
LISTEN = "tunnel.listen"
DIAL = "tunnel.dial"
OPEN = "stream.open"
CREDIT = "stream.credit"
CLOSE = "stream.close"
EVENTS = "process.events"
RESET = "stream.reset"
INITIAL_CREDIT = 256 << 10
FIRST_OPENED_STREAM = 1 << 31
FIRST_DIALED_STREAM = 3 << 30

EXITED = "exited"
SIGNALED = "signaled"
TIMEOUT = "timeout"
KILLED = "killed"
NOT_STARTED = "not_started"

INVALID_ARGUMENT = "invalid_argument"
UNKNOWN_METHOD = "unknown_method"
PIDS_EXHAUSTED = "pids_exhausted"
TOO_LARGE = "too_large"
CANCELLED = "cancelled"
BUSY = "busy"
UNSUPPORTED = "unsupported"
IO_ERROR = "io_error"
INTERNAL = "internal"

RPC_ERROR = -32000
MAX_ID = (1 << 53) - 1

Message = dict[str, object]


class Violation(Exception):
    """The host broke the rules of the channel: the box ends."""


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: str, message: str, details: "Mapping[str, object] | None" = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details or {}


class _Strict:
    """What the C scanner asks for: plain types, no NaN."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    memo: dict[str, str] = {}  # noqa: RUF012  # the scanner's own, emptied by it after each call

    @staticmethod
    def parse_constant(name: str) -> object:
        raise ValueError(f"{name} is not JSON")


def _refuse_object(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is not JSON")


_scan = _json.make_scanner(_Strict())  # type: ignore[arg-type]  # wants a decoder, reads these attributes
_encode = _json.make_encoder(
    None,  # no look for cycles: messages are built here
    _refuse_object,
    _json.encode_basestring_ascii,
    None,
    ":",
    ",",
    False,
    False,
    False,
)


def parse_message(payload: bytes) -> Message:
    """A control payload to its message. Raises Violation for anything that is not one."""
    try:
        text = payload.decode("utf-8")
        message, end = _scan(text, 0)
    except (ValueError, StopIteration, RecursionError, SystemError) as error:
        # SystemError: Python 3.11's scanner finds no JSONDecodeError to raise while `json` is not imported.
        raise Violation(f"not JSON: {error}") from None
    if end != len(text) and text[end:].strip():
        raise Violation("bytes after the message")
    if type(message) is not dict or message.get("jsonrpc") != "2.0":
        raise Violation("not a JSON-RPC 2.0 message")
    return message


def encode_json(value: "Mapping[str, object]") -> bytes:
    return "".join(_encode(value, 0)).encode("ascii")


def encode_events(request_id: int, events: list[bytes], dropped: int, ends: list[bytes]) -> bytes:
    """A `process.events` notification of events and ends that are encoded already."""
    body = b'{"jsonrpc":"2.0","method":"%s","params":{"id":%d,"dropped":%d,"events":[%s],"ends":[%s]}}' % (
        EVENTS.encode(),
        request_id,
        dropped,
        b",".join(events),
        b",".join(ends),
    )
    return HEADER.pack(len(body)) + body


def encode_message(message: Message) -> bytes:
    """A message as one frame. Raises ValueError when it is too large."""
    body = encode_json(message)
    if len(body) > MAX_CONTROL_BYTES:
        raise ValueError(f"control message of {len(body)} bytes")
    return HEADER.pack(len(body)) + body


def encode_result(request_id: int, result: Message) -> bytes:
    return encode_message({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: int, code: str, message: str, details: "Mapping[str, object] | None" = None) -> bytes:
    error = {"code": RPC_ERROR, "message": message[:4096], "data": {"code": code, "details": dict(details or {})}}
    return encode_message({"jsonrpc": "2.0", "id": request_id, "error": error})


def encode_notice(method: str, params: Message) -> bytes:
    return encode_message({"jsonrpc": "2.0", "method": method, "params": params})


def encode_base64(data: "bytes | bytearray") -> str:
    return b2a_base64(data, newline=False).decode("ascii")


class Params:
    """Takes the members of a request's `params` one by one; `done` refuses what nobody took."""

    def __init__(self, params: Message) -> None:
        self._left = dict(params)

    def _take(self, name: str, default: object, kinds: tuple[type, ...]) -> object:
        value = self._left.pop(name, default)
        if type(value) not in kinds:
            raise Refusal(INVALID_ARGUMENT, f"{name} is missing or has the wrong type: {value!r:.100}")
        return value

    def take_int(self, name: str, default: "int | None", low: int, high: int) -> int:
        value = self._take(name, default, (int,))
        assert type(value) is int
        if not low <= value <= high:
            raise Refusal(INVALID_ARGUMENT, f"{name} must be {low} to {high}: {value!r:.100}")
        return value

    def take_bool(self, name: str, default: "bool | None") -> bool:
        value = self._take(name, default, (bool,))
        assert type(value) is bool
        return value

    def take_seconds(self, name: str, default: "float | None") -> "float | None":
        value = self._left.pop(name, default)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 < value <= 1e9:  # type: ignore[operator]  # a number by now
            raise Refusal(INVALID_ARGUMENT, f"{name} must be a time over 0: {value!r:.100}")
        return float(value)  # type: ignore[arg-type]  # a number by now

    def take_name(self, name: str, default: "str | None") -> bytes:
        """A file name, decoded from its wire form."""
        value = self._take(name, default, (str,))
        assert type(value) is str
        return decode_argument(name, value)

    def take_names(self, name: str) -> list[bytes]:
        value = self._take(name, None, (list,))
        assert type(value) is list
        return [decode_argument(name, item) for item in value]

    def take_env(self, name: str) -> dict[bytes, bytes]:
        value = self._take(name, {}, (dict,))
        assert type(value) is dict
        env = {}
        for key, text in value.items():
            raw = decode_argument(name, key)
            if not raw or b"=" in raw:
                raise Refusal(INVALID_ARGUMENT, f"{name}: not the name of a variable: {key!r:.100}")
            env[raw] = decode_argument(name, text)
        return env

    def done(self) -> None:
        for name in self._left:
            raise Refusal(INVALID_ARGUMENT, f"unknown parameter {name!r:.100}")


def decode_argument(name: str, text: object) -> bytes:
    """One string that becomes bytes for the kernel: no NUL, no lone surrogate."""
    if type(text) is not str:
        raise Refusal(INVALID_ARGUMENT, f"{name} must hold strings: {text!r:.100}")
    try:
        return decode_name(text)
    except ValueError as error:
        raise Refusal(INVALID_ARGUMENT, f"{name}: {error}") from None


def show_name(raw: bytes) -> str:
    """A name for a message that people read."""
    return raw.decode("utf-8", "backslashreplace")


__all__ = ["decode_name", "encode_name"]
