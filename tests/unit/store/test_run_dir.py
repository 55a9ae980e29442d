from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path

import pytest

from corral.errors import ConfigError, RecordError
from corral.store.run_dir import RunDir, RunMeta, find_run, find_runs_root, list_runs, load_meta


def test_new_runs_are_sortable_and_owner_only(home: Path) -> None:
    with RunDir.create() as first, RunDir.create() as second:
        assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", first.run_id)
        assert list_runs() == sorted([first.run_id, second.run_id], reverse=True)
        assert first.path.parent == find_runs_root()
        assert home in first.path.parents


def test_data_directory_is_owner_only(tmp_path: Path) -> None:
    root = tmp_path / "data" / "runs"
    root.mkdir(parents=True, mode=0o755)
    with RunDir.create(root) as run:
        assert [stat.S_IMODE(path.stat().st_mode) for path in (root, run.path)] == [0o700, 0o700]


def test_meta_comes_back_as_written(tmp_path: Path) -> None:
    with RunDir.create(tmp_path) as run:
        meta = RunMeta(
            run.run_id,
            b"/w/\xff\n",
            "2030-01-01T00:00:00Z",
            mode="overlay",
            masked=((b".env\xff", ".env"),),
            facts={"a": "b"},
        )
        run.write_meta(meta)
        assert load_meta(run.run_id, tmp_path) == meta
        assert stat.S_IMODE((run.path / "meta.json").stat().st_mode) == 0o600
        assert os.listdir(run.path) == ["meta.json", "reserve"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "workspace": "/w", "masked": [], "x": 1}']
)
def test_broken_meta_is_told(tmp_path: Path, text: str) -> None:
    with RunDir.create(tmp_path) as run:
        (run.path / "meta.json").write_text(text)
        with pytest.raises(RecordError, match=run.run_id):
            load_meta(run.run_id, tmp_path)


@pytest.mark.parametrize(
    "run_id", ["", ".", "..", "../x", "/etc", "20300101-000000-abcdef", "20300101-000000-abcdef/.."]
)
def test_refuses_ids_that_are_paths(tmp_path: Path, run_id: str) -> None:
    (tmp_path / "20300101-000000-abcdef").symlink_to("/etc")
    with pytest.raises(ConfigError, match="there is no run"):
        find_run(run_id, tmp_path)


def test_a_run_in_use_is_not_opened_twice(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path)
    with pytest.raises(ConfigError, match="is in use"):
        RunDir.open(run.run_id, tmp_path)
    run.close()
    run.close()
    with RunDir.open(run.run_id, tmp_path) as again:
        again.remove()
    assert list_runs(tmp_path) == []


def test_unwritable_data_directory_is_the_users_to_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        RunDir.create(tmp_path / "file" / "runs")
    assert caught.value.hint == "fix its permissions, or set XDG_DATA_HOME to a writable directory"
    assert list_runs(tmp_path / "nowhere") == []


def test_last_is_the_newest_run() -> None:
    with pytest.raises(ConfigError, match="there is no run 'last'"):
        find_run("last")
    with RunDir.create() as run_dir:
        older = run_dir.path.with_name("20200101-000000-000000")
        older.mkdir()
        assert find_run("last") == run_dir.path


def test_runs_of_one_second_are_listed_by_age(tmp_path: Path) -> None:
    made = []
    for _ in range(20):
        with RunDir.create(tmp_path) as run:
            made.append(run.run_id)
        time.sleep(0.002)
    assert list_runs(tmp_path) == made[::-1]
    assert find_run("last", tmp_path).name == made[-1]


def test_the_end_of_a_run_has_room_set_aside(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "runs")
    assert (run.path / "reserve").stat().st_blocks * 512 >= 64 << 10
    run.release_reserve()
    run.release_reserve()
    assert os.listdir(run.path) == []
    run.close()
