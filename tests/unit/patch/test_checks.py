"""What a reviewer is shown before a patch leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.patch.box import Box, make_box, put

from corral.patch import check_patch
from corral.redact import Redactor
from corral.schema.patch import Severity


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return make_box(tmp_path)


def findings(box: Box) -> list[tuple[str, str, str, int | None]]:
    """Severity, kind, path, line of each finding of the box's export."""
    box.export()
    found = check_patch(box.patch_file.read_bytes(), box.workspace)
    return [(one.severity.value, one.kind, one.path, one.line) for one in found]


@pytest.mark.parametrize("target", ["/etc/cron.d", "../../.ssh/authorized_keys", "d/../../x", ".."])
def test_links_that_leave_the_workspace_are_blocked(box: Box, target: str) -> None:
    (box.upper / "out").symlink_to(target)
    assert findings(box) == [("block", "link_leaves", "out", None)]


@pytest.mark.parametrize("target", ["../a", "b", "./b/../c", "b/.."])
def test_links_within_the_workspace_are_fine(box: Box, target: str) -> None:
    (box.upper / "d").mkdir()
    (box.upper / "d/in").symlink_to(target)
    assert findings(box) == []


@pytest.mark.parametrize(
    "secret",
    [
        "sk-test-000000000000000000000000",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a" * 36,
        "glpat-" + "x" * 20,
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "https://user:hunter22@example.org/x.git",
        "machine example.org login me password hunter22",
        "xoxb-0000000000-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    ],
)
def test_secrets_in_added_lines_are_found_and_masked(box: Box, secret: str) -> None:
    put(box.workspace, "conf", b"one\ntwo\nthree\n")
    put(box.upper, "conf", b"one\nTWO\nthree\nfour\n" + secret.encode() + b"\n")
    assert findings(box) == [("ask", "secret", "conf", 5)]
    (finding,) = check_patch(box.patch_file.read_bytes())
    assert secret not in finding.text


def test_numbers_of_persons_and_random_text_are_findings_of_their_own(box: Box) -> None:
    random = b"Zq8Kd0Xr2Lm5Vt7Yb9Nc1Pw3Hs6Jf4Gu"
    put(box.upper, "conf", b"card 4111 1111 1111 1111\n" + random + b"\n" + b"0123456789abcdef" * 4 + b"\n")
    assert findings(box) == [("warn", "personal", "conf", 1), ("info", "random", "conf", 2)]


def test_a_value_that_the_run_knows_is_a_finding(box: Box) -> None:
    put(box.upper, "conf", b"one\nplain words as a password\n")
    known = Redactor([("db", "words as a password")])
    box.export()
    (finding,) = check_patch(box.patch_file.read_bytes(), redactor=known)
    assert (finding.kind, finding.line, finding.text) == ("secret", 2, "db (19 characters)")


def test_secrets_that_go_away_or_stay_are_no_finding(box: Box) -> None:
    line = b"sk-test-000000000000000000000000\n"
    put(box.workspace, "conf", line + b"a\n" + line)
    put(box.upper, "conf", line + b"b\n")
    assert findings(box) == []


def test_lines_are_those_of_the_new_file_across_hunks(box: Box) -> None:
    old = [b"line %d" % n for n in range(200)]
    new = list(old)
    del new[3]
    new[150] = b"sk-test-000000000000000000000000"
    new.insert(170, b"sk-test-111111111111111111111111")
    put(box.workspace, "conf", b"\n".join(old))
    put(box.upper, "conf", b"\n".join(new))
    assert findings(box) == [("ask", "secret", "conf", 151), ("ask", "secret", "conf", 171)]


def test_names_that_collide_or_do_not_travel_are_told(box: Box) -> None:
    put(box.workspace, "Makefile.am", b"m")
    for path in ("README.md", "readme.md", "Src/x", "src/y", "aux.txt", "con", "a:b", "trail.", "MAKEFILE.AM", b"\xff"):
        put(box.upper, path, b"content of it")
    kinds = {(kind, path) for _, kind, path, _ in findings(box)}
    assert kinds == {
        ("case_collision", "README.md"),
        ("case_collision", "Src"),
        ("case_collision", "MAKEFILE.AM"),
        ("not_portable", "aux.txt"),
        ("not_portable", "con"),
        ("not_portable", "a:b"),
        ("not_portable", "trail."),
        ("not_portable", "\0/w=="),
    }


def test_a_rename_that_only_changes_case_collides_with_nothing(box: Box) -> None:
    from tests.unit.patch.box import whiteout

    put(box.workspace, "Name", b"content\n")
    whiteout(box.upper, "Name")
    put(box.upper, "name", b"content\n")
    assert findings(box) == []


@pytest.mark.parametrize(
    ("path", "severity"),
    [
        (".github/workflows/x.yml", "ask"),
        (".gitattributes", "ask"),
        ("deep/.gitmodules", "ask"),
        (".pre-commit-config.yaml", "ask"),
        ("lib/evil.pth", "ask"),
        (".vscode/tasks.json", "ask"),
        ("Makefile", "warn"),
        ("pkg/package.json", "warn"),
        ("setup.py", "warn"),
    ],
)
def test_files_that_others_run_are_told(box: Box, path: str, severity: str) -> None:
    put(box.upper, path, b"x\n")
    kind = {"ask": "runs_on_host", "warn": "runs_on_build"}[severity]
    assert findings(box) == [(severity, kind, path, None)]


def test_hidden_characters_in_names_need_a_yes(box: Box) -> None:
    put(box.upper, "user\u202etxt.py", b"x\n")
    assert ("ask", "hidden_character", "user\u202etxt.py", None) in findings(box)


def test_large_patches_are_told(box: Box) -> None:
    for number in range(1100):
        put(box.upper, f"f{number}", b"%d\n" % number)
    assert [(kind, severity) for severity, kind, *_ in findings(box)] == [("large", "warn")]


def test_executables_and_binaries_are_told(box: Box) -> None:
    put(box.upper, "run", b"\x7fELF\0\0", 0o755)
    assert findings(box) == [("info", "executable", "run", None), ("info", "binary", "run", None)]


def test_the_most_severe_comes_first(box: Box) -> None:
    (box.upper / "z").symlink_to("/etc")
    put(box.upper, "Makefile", b"x\n")
    put(box.upper, ".envrc", b"x\n")
    put(box.upper, "run", b"x\n", 0o755)
    box.export()
    found = [one.severity for one in check_patch(box.patch_file.read_bytes())]
    assert found == [Severity.BLOCK, Severity.ASK, Severity.WARN, Severity.INFO]
