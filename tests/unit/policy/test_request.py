from __future__ import annotations

import base64

import pytest

from corral.policy.request import build_request, find_patch_paths, normalise_path
from corral.schema.policy import (
    Action,
    CommandFacts,
    PathTarget,
    PolicyRequest,
    PolicySession,
    ToolTarget,
    Zone,
)
from corral.schema.tools import SideEffect, ToolCall, ToolSpec

SESSION = PolicySession(id="s1")


def test_a_file_call_becomes_its_action_and_paths(specs: dict[str, ToolSpec]) -> None:
    call = ToolCall(id="c", name="move_file", arguments={"source": "./a//b", "target": "/tmp/c/../d"})
    assert build_request(specs["move_file"], call, SESSION) == PolicyRequest(
        session=SESSION,
        action=Action.WRITE,
        targets=(
            PathTarget(path="/workspace/a/b", zone=Zone.WORKSPACE),
            PathTarget(path="/tmp/d", zone=Zone.TMP),
        ),
        tool="move_file",
        side_effect=SideEffect.WORKSPACE_WRITE,
    )


def test_a_file_tool_without_a_path_is_about_the_workspace(specs: dict[str, ToolSpec]) -> None:
    call = ToolCall(id="c", name="list_files")
    request = build_request(specs["list_files"], call, SESSION, mount_point="/testbed")
    assert request.targets == (PathTarget(path="/testbed", zone=Zone.WORKSPACE, root=True),)


def test_a_command_becomes_its_facts(specs: dict[str, ToolSpec]) -> None:
    call = ToolCall(id="c", name="shell", arguments={"command": "ls -la src"})
    request = build_request(specs["shell"], call, SESSION)
    assert (request.action, request.targets, request.command) == (
        Action.SHELL,
        (ToolTarget(name="shell"),),
        CommandFacts(parsed=True, programs=("ls",), safe=True),
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", PathTarget(path="/workspace", zone=Zone.WORKSPACE, root=True)),
        ("a/../..", PathTarget(path="/", zone=Zone.OUTSIDE, root=True)),
        ("/workspacefoo/x", PathTarget(path="/workspacefoo/x", zone=Zone.OUTSIDE)),
        ("//etc/passwd", PathTarget(path="/etc/passwd", zone=Zone.OUTSIDE)),
        ("//workspace/x", PathTarget(path="/workspace/x", zone=Zone.WORKSPACE)),
        ("/outputs/../outputs/c1", PathTarget(path="/outputs/c1", zone=Zone.OUTPUTS)),
        ("/tmp", PathTarget(path="/tmp", zone=Zone.TMP, root=True)),
        ("a\0b", PathTarget(path="", zone=Zone.OUTSIDE)),
        ("\0!!", PathTarget(path="", zone=Zone.OUTSIDE)),
        ("\ud800", PathTarget(path="", zone=Zone.OUTSIDE)),
    ],
)
def test_paths_are_absolute_and_have_a_zone(path: str, expected: PathTarget) -> None:
    assert normalise_path(path, "/workspace") == expected


def test_the_wire_spelling_of_a_name_meets_the_same_rule() -> None:
    wire = "\0" + base64.b64encode(b"secret/../key").decode()
    assert normalise_path(wire, "/workspace") == normalise_path("key", "/workspace")


def test_a_name_that_is_no_utf8_is_spelled_out() -> None:
    wire = "\0" + base64.b64encode(b"caf\xe9").decode()
    assert normalise_path(wire, "/workspace").path == "/workspace/caf\\xe9"


@pytest.mark.parametrize(
    ("patch", "paths"),
    [
        (
            "*** Begin Patch\n*** Update File: a b.py\n*** Move to: c.py\n@@\n-x\n+y\n*** Delete File: d\n",
            ["a b.py", "c.py", "d"],
        ),
        ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", ["x", "y"]),
        ("--- /dev/null\n+++ b/new\t2026-01-01\n@@ -0,0 +1 @@\n+a\n", ["new"]),
        ("--- q.sql\n+++ q.sql\n@@ -1,2 +1 @@\n--- /etc/passwd\n a\n", ["q.sql"]),
        ("diff --git a/o b/n\nsimilarity index 100%\nrename from o\nrename to n\n", ["o", "n"]),
        ("diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n", ["run.sh"]),
        ('diff --git "a/\\303\\251 \\"q" "b/\\303\\251 \\"q"\nnew file mode 100644\n', ['é "q']),
        ("nothing", []),
    ],
)
def test_patches_name_their_paths(patch: str, paths: list[str]) -> None:
    assert find_patch_paths(patch) == paths


def test_a_second_command_cannot_hide_behind_the_first(specs: dict[str, ToolSpec]) -> None:
    for arguments in ({"command": "rm -r x", "text": "ls"}, {"command": "ls", "text": "rm -r x"}):
        call = ToolCall(id="c", name="process", arguments={"action": "start", **arguments})
        request = build_request(specs["process"], call, SESSION)
        assert request.command is not None
        assert not request.command.safe
