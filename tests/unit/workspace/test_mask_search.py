from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corral.errors import ConfigError
from corral.sandbox.workspace.mask.search import Secret, SecretSearch

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n"


@contextmanager
def opened(root: Path) -> Iterator[int]:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def search(root: Path, patterns: tuple[str, ...] | None = None) -> list[tuple[str, str]]:
    with opened(root) as descriptor:
        return [(secret.path, secret.reason) for secret in SecretSearch(descriptor, patterns).run()]


def fill(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_finds_secrets_by_name_and_place(tmp_path: Path) -> None:
    secret = [
        ".env",
        ".env.local",
        "a/b/.npmrc",
        ".aws/credentials",
        "x/.docker/config.json",
        "keys/id_rsa",
        "cert.p12",
    ]
    plain = [".env.example", "a/.env.sample", "env", "credentials", "config.json", "id_rsa.pub", "b/environment.py"]
    fill(tmp_path, dict.fromkeys([*secret, *plain], "x"))
    assert [path for path, _ in search(tmp_path)] == sorted(secret)


def test_keys_are_told_from_certificates_by_content(tmp_path: Path) -> None:
    fill(
        tmp_path, {"private.pem": KEY, "server.key": KEY, "cert.pem": "-----BEGIN CERTIFICATE-----", "i18n.key": "a=b"}
    )
    fill(tmp_path, {"my-service-account.json": '{"private_key": "x"}', "service-account-form.json": "{}"})
    assert [path for path, _ in search(tmp_path)] == ["my-service-account.json", "private.pem", "server.key"]


def test_git_configs_of_submodules_and_worktrees_are_seen(tmp_path: Path) -> None:
    url = "[remote]\n\turl = https://u:p@h/\n"
    fill(tmp_path, {".git/config": url, ".git/modules/a/modules/b/config": url, "sub/.git/config": url})
    fill(tmp_path, {".git/worktrees/w/config.worktree": url, ".git/objects/config": url, "config": url})
    assert [path for path, _ in search(tmp_path)] == [
        ".git/config",
        ".git/modules/a/modules/b/config",
        ".git/worktrees/w/config.worktree",
        "sub/.git/config",
    ]


def test_git_config_without_credentials_is_shown(tmp_path: Path) -> None:
    fill(tmp_path, {".git/config": "[core]\n\tbare = false\n"})
    assert search(tmp_path) == []


def test_target_of_a_link_is_covered_when_it_is_inside(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    fill(workspace, {"deploy/production": "x"})
    fill(tmp_path, {"outside": "x"})
    (workspace / ".env").symlink_to("deploy/production")
    (workspace / ".npmrc").symlink_to("../outside")
    (workspace / ".netrc").symlink_to("nowhere")
    assert search(workspace) == [("deploy/production", ".env (target of '.env')")]


def test_only_regular_files_are_covered_by_the_built_in_list(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".env")
    (tmp_path / ".npmrc").mkdir()
    os.mkfifo(tmp_path / "fifo.pem")
    assert search(tmp_path) == []


def test_own_patterns_replace_the_list(tmp_path: Path) -> None:
    fill(tmp_path, {".env": "x", "a/secret.txt": "x", "private/deep/x": "x", "b/token": "x", "c/keep.token": "x"})
    found = search(tmp_path, ("secret.*", "private/**", "/b/token", "*.token", "!keep.token"))
    assert found == [("a/secret.txt", "secret.*"), ("b/token", "/b/token"), ("private", "private/**")]


def test_pattern_that_is_none_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mask pattern"):
        search(tmp_path, ("!",))


def test_odd_names_are_found(tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff \n\\")
    fill(tmp_path, {f"{odd}/.env": "x"})
    assert search(tmp_path) == [(f"{odd}/.env", ".env")]


def test_search_ends_at_its_bound_and_says_so(tmp_path: Path) -> None:
    fill(tmp_path, {f"d{i}/e/f{j}": "" for i in range(20) for j in range(10)})
    fill(tmp_path, {".env": "x", "d19/e/.env": "x", "d19/named/.env": "x"})
    with opened(tmp_path) as descriptor:
        bounded = SecretSearch(descriptor, None, max_entries=50)
        assert [secret.path for secret in bounded.run()] == [".env"]
        assert not bounded.is_complete
        named = SecretSearch(descriptor, ("d19/named/.env",), max_entries=5)
        assert [secret.path for secret in named.run()] == ["d19/named/.env"]
        # No time at all is enough for a small tree: a busy machine must not leave a secret open.
        full = SecretSearch(descriptor, None, max_s=0.0)
        assert len(full.run()) == 3
        assert full.is_complete


def test_dependencies_are_looked_at_last(tmp_path: Path) -> None:
    fill(tmp_path, {f"node_modules/p{i}/x": "" for i in range(100)} | {"z/z/z/.env": "x", "node_modules/.npmrc": "x"})
    with opened(tmp_path) as descriptor:
        bounded = SecretSearch(descriptor, None, max_entries=5)
        assert [secret.path for secret in bounded.run()] == ["z/z/z/.env"]


def test_placeholder_fits_the_format(tmp_path: Path) -> None:
    fill(tmp_path, {".docker/config.json": "{}", ".env": "x"})
    with opened(tmp_path) as descriptor:
        found = SecretSearch(descriptor, None).run()
    contents: list[Secret] = found
    assert [secret.content for secret in contents] == [
        b'{"_comment": "masked by corral: the box does not see this secret file"}\n',
        b"# masked by corral: the box does not see this secret file\n",
    ]
