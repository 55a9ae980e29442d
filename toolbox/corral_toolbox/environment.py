"""What every command finds: base environment, shell, the user's name, its home."""

import os

from corral_protocol.name import encode_name
from corral_toolbox.channel import wire
from corral_toolbox.kernel import syscall

USER = b"box"
CWD_FD = 251
"""Descriptor on which bash tells its last directory: above what scripts use (3-9, 200), below bash's own 255."""
PLAIN_CWD_FD = 9
"""The same for a plain sh, which cannot name a descriptor of two digits."""
_EROFS = 30
_MAX_ROOT_ENTRIES = 256
_RUN_DIRECTORY = "/run/corral"
PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BASE: dict[bytes, bytes] = {
    b"PATH": PATH,
    b"USER": USER,
    b"LOGNAME": USER,
    b"LC_CTYPE": b"C.UTF-8",  # not LANG: in every other respect C.UTF-8 is C, and each program loads twelve files less
    b"TERM": b"dumb",
    b"NO_COLOR": b"1",
    b"PAGER": b"cat",
    b"GIT_PAGER": b"cat",
    b"MANPAGER": b"cat",
    b"GIT_TERMINAL_PROMPT": b"0",
    b"DEBIAN_FRONTEND": b"noninteractive",
    b"PIP_NO_INPUT": b"1",
    b"PIP_DISABLE_PIP_VERSION_CHECK": b"1",
}
_PLAIN_SHELL_LINE = b"trap '{ set +x; pwd -P >&9; } 2>/dev/null || :' EXIT; eval \"$1\""


def find_program(names: tuple[bytes, ...], search: bytes) -> bytes:
    """The first of these names that is there: as it stands if it is a path, else by PATH. b"" when none is."""
    places = [place for place in search.split(b":") if place.startswith(b"/")]
    for name in names:
        for path in [name] if name.startswith(b"/") else [os.path.join(place, name) for place in places]:
            if os.access(path, os.X_OK):
                return path
    return b""


def find_shell(search: bytes) -> bytes:
    return find_program((b"/bin/bash", b"/usr/bin/bash", b"bash", b"/bin/sh", b"sh"), search)


def list_programs(shell: bytes, search: bytes) -> list[str]:
    """The capabilities that are programs of the image, which may lack any."""
    found = [name for name in ("git", "rg") if find_program((name.encode(),), search)]
    return ["shell", *found] if shell else found


def build_base(home: bytes, shell: bytes, given: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The base environment of every command: ours, then the host's."""
    env = dict(_BASE)
    env[b"HOME"] = home
    if shell:
        env[b"SHELL"] = shell
    env.update(given)
    return env


def trust_mount_point(env: dict[bytes, bytes], workspace: bytes) -> None:
    """git refuses a repository of another owner; this allows exactly the mount point, whatever else is configured."""
    try:
        count = int(env.get(b"GIT_CONFIG_COUNT", b"0"))
    except ValueError:
        return  # git refuses it with its own words
    if 0 <= count < 1000:
        env[b"GIT_CONFIG_COUNT"] = b"%d" % (count + 1)
        env[b"GIT_CONFIG_KEY_%d" % count] = b"safe.directory"
        env[b"GIT_CONFIG_VALUE_%d" % count] = workspace


def build_shell_call(shell: bytes, command: bytes, env: dict[bytes, bytes]) -> tuple[list[bytes], int]:
    """argv for a command line, and the descriptor on which the shell tells where it ended. Adds to `env`."""
    if not shell.endswith(b"bash"):
        return [b"sh", b"-c", _PLAIN_SHELL_LINE, b"sh", command], PLAIN_CWD_FD
    if b"BASH_ENV" in env:
        env[b"CORRAL_BASH_ENV"] = env[b"BASH_ENV"]
    env[b"BASH_ENV"] = os.path.join(os.path.dirname(__file__), "bash_env.sh").encode()
    return [b"bash", b"-c", command], CWD_FD


def write_accounts(uid: int, gid: int, home: bytes, shell: bytes) -> None:
    """The user's name for programs that ask; /etc/passwd and /etc/group of the image point here."""
    os.makedirs(_RUN_DIRECTORY, mode=0o755, exist_ok=True)
    shell = shell or b"/bin/sh"
    passwd = b"root:x:0:0:root:/root:/usr/sbin/nologin\n"
    group = b"root:x:0:\n"
    if uid:
        passwd += b"%s:x:%d:%d:%s:%s:%s\n" % (USER, uid, gid, USER, home, shell)
    if gid:
        group += b"%s:x:%d:\n" % (USER, gid)
    for name, text in (("passwd", passwd), ("group", group)):
        try:
            fd = os.open(f"{_RUN_DIRECTORY}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno != _EROFS:
                raise
            continue  # the host's own, in an image that has the link
        try:
            os.write(fd, text)
        finally:
            os.close(fd)


def make_home(uid: int, gid: int, home: bytes) -> None:
    """The home directory, owned by the untrusted user from its first moment: there is no capability to give it away."""
    try:
        if os.stat(home).st_uid == uid:  # a mount of its own, in an image whose directories cannot be changed
            return
    except FileNotFoundError:
        pass
    parent = os.path.dirname(home.rstrip(b"/")) or b"/"
    os.makedirs(parent, mode=0o755, exist_ok=True)
    mode = os.stat(parent).st_mode & 0o7777
    # Nothing untrusted runs yet, so the parent may be open for this moment.
    if not mode & 0o002:
        os.chmod(parent, 0o777)  # noqa: S103
    syscall.lend_ids(uid, gid)
    try:
        os.mkdir(home, 0o755)
    except FileExistsError:
        pass
    finally:
        syscall.lend_ids(0, 0)
        if not mode & 0o002:
            os.chmod(parent, mode)


def list_root(workspace: bytes, uid: int, gid: int) -> list[wire.Message]:
    """The first names of the workspace, by which the host knows its own directory again; [] when unreadable."""
    syscall.lend_ids(uid, gid)
    try:
        names = sorted(os.listdir(workspace))[:_MAX_ROOT_ENTRIES]
        entries: list[wire.Message] = []
        for name in names:
            try:
                found = os.lstat(os.path.join(workspace, name))
            except OSError:
                continue
            entries.append(
                {
                    "name": encode_name(name),
                    "mode": found.st_mode,
                    "size": found.st_size,
                    "mtime_ns": found.st_mtime_ns,
                    "ctime_ns": found.st_ctime_ns,
                }
            )
        return entries
    except OSError:
        return []
    finally:
        syscall.lend_ids(0, 0)
