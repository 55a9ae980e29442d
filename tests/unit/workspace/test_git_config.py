from __future__ import annotations

import pytest

from corral.sandbox.workspace.mask.git_config import strip_credentials


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("url = https://me:hunter2@host/x", "url = https://host/x"),
        ("url = https://hunter2@host/x", "url = https://host/x"),
        ("url = ssh://git:hunter2@host/x", "url = ssh://git@host/x"),
        ('[url "https://x:hunter2@host/"]\n\tinsteadOf = https://host/', '[url "https://host/"]\n\tinsteadOf = https://host/'),
        (
            '[http "https://github.com/"]\n\textraheader = AUTHORIZATION: basic aHVudGVyMg==',
            '[http "https://github.com/"]\n\textraheader = masked-by-corral',
        ),
        ("[http] extraHeader = X: hunter2", "[http] extraHeader = masked-by-corral"),
        ("\tsmtpPass = hunter2\n\tname = x", "\tsmtpPass = masked-by-corral\n\tname = x"),
        ("\textraheader = a \\\n  hunter2 \\\n  hunter2\n\tname = x", "\textraheader = masked-by-corral\n\tname = x"),
        ('\thelper = "!f() { echo password=hunter2; }; f"', "\thelper = masked-by-corral"),
        ("proxy = http://u:hunter2@proxy:3128", "proxy = http://proxy:3128"),
    ],
)  # fmt: skip
def test_credentials_go_and_the_rest_stays(text: str, expected: str) -> None:
    assert strip_credentials(text.encode()) == expected.encode()


@pytest.mark.parametrize(
    "text",
    [
        '[remote "origin"]\n\turl = https://github.com/a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
        "url = git@github.com:a/b.git",
        "url = ssh://git@github.com/a/b.git",
        "helper = store",
        "email = me@example.org",
        "",
    ],
)
def test_nothing_to_hide_changes_nothing(text: str) -> None:
    assert strip_credentials(text.encode()) is None
