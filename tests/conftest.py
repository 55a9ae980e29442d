"""What every test stands on: a home of its own, an engine or a printed reason, the image, one seed.

CORRAL_SEED fixes all chance; CORRAL_FRACTION (0 to 1) thins out the tests marked `slow` and the rounds of `rounds`;
CORRAL_REQUIRE_DOCKER=1 turns a missing engine from a skip into a failure. `-n auto` is for tests that need no engine:
workers of pytest-xdist share nothing but the seed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import platformdirs
import pytest
from docker.errors import DockerException

from corral.sandbox.image import build_image

SEED = int(os.environ.get("CORRAL_SEED") or random.SystemRandom().randrange(1 << 32))
os.environ["CORRAL_SEED"] = str(SEED)  # workers of `-n` thin out alike
FRACTION = float(os.environ.get("CORRAL_FRACTION") or 1.0)
_HOME_NAMES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
_before = pytest.StashKey[dict[str, int]]()

# Where bytecode is off, as images often have it, each worker and each corral that a test starts would compile it all.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _real_folders() -> list[Path]:
    kinds = (
        platformdirs.user_config_path,
        platformdirs.user_data_path,
        platformdirs.user_state_path,
        platformdirs.user_cache_path,
    )
    return [kind("corral") for kind in kinds]


_counter = itertools.count(1)

REAL_FOLDERS = _real_folders()
"""Where corral of the person who runs the tests lives; read before any test moves the home."""


def _snapshot() -> dict[str, int]:
    """Every path below the real folders with its change time."""
    found = {}
    for folder in REAL_FOLDERS:
        for place, folders, files in os.walk(folder):  # which passes over what goes away meanwhile
            for path in (place, *(os.path.join(place, name) for name in folders + files)):
                with contextlib.suppress(FileNotFoundError):  # somebody else's corral at work
                    found[path] = os.lstat(path).st_ctime_ns
    return found


def pytest_report_header() -> str:
    return f"corral: CORRAL_SEED={SEED} CORRAL_FRACTION={FRACTION}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: two for a core, because half of the time goes into waiting for time limits."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # what a worker prints, and its exit status, nobody sees
        session.stash[_before] = _snapshot()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return
    before, after = session.stash[_before], _snapshot()
    touched = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if touched and os.environ.get("CI"):
        print(f"\nERROR: the suite touched the real home: {touched[:10]}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif touched:
        # At a desk it may have been another corral, at work meanwhile.
        print(f"\nWARNING: the real home changed while the suite ran: {touched[:3]}")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what has rounds; keeps a seeded share of the slow tests, always at least one."""
    for item in items:
        if "rounds" in getattr(item, "fixturenames", ()):
            item.add_marker("repeated")
    slow = [item for item in items if item.get_closest_marker("slow")]
    if FRACTION >= 1 or not slow:
        return
    kept = set(random.Random(SEED).sample(slow, max(1, round(len(slow) * FRACTION))))
    dropped = [item for item in slow if item not in kept]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in set(dropped)]


@pytest.fixture(scope="session", autouse=True)
def session_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of fixtures that outlive one test."""
    with pytest.MonkeyPatch.context() as patch:
        yield _move_home(patch, tmp_path_factory.mktemp("home"))


@pytest.fixture(autouse=True)
def home(session_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This test's own empty home directory; HOME and XDG_* point into it."""
    # Counted here: `mktemp` reads the names of all that were made before.
    folder = session_home.with_name(f"home-{next(_counter)}")
    folder.mkdir(mode=0o700)
    return _move_home(monkeypatch, folder)


def _move_home(patch: pytest.MonkeyPatch, folder: Path) -> Path:
    patch.setenv("HOME", str(folder))
    patch.delenv("CORRAL_CONFIG", raising=False)
    for name in _HOME_NAMES:
        patch.setenv(name, str(folder / name.lower()))
    return folder


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[docker.DockerClient]:
    """The engine of the environment; without one the test is skipped and says why."""
    try:
        client = docker.from_env(timeout=60)
        client.ping()
    except (DockerException, OSError) as error:
        if os.environ.get("CORRAL_REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(f"no container engine answers: {error}")
    yield client
    client.close()


@pytest.fixture(autouse=True)
def _engine_for_marked(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("docker"):
        request.getfixturevalue("docker_engine")


@pytest.fixture(scope="session")
def sandbox_image(docker_engine: docker.DockerClient) -> str:
    """The tag of the image made from the tree as it is now."""
    return build_image().tag


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> str:
    """The image of a box: CORRAL_TEST_IMAGE, or the one of the tree as it is now."""
    return os.environ.get("CORRAL_TEST_IMAGE") or str(request.getfixturevalue("sandbox_image"))


@pytest.fixture
def chance() -> random.Random:
    """All chance of a test; the header of the run tells the seed."""
    return random.Random(SEED)


@pytest.fixture
def rounds() -> Callable[[int], int]:
    """`rounds(50)`: fifty, or the share of it that CORRAL_FRACTION asks for, at least one."""
    return lambda count: max(1, round(count * FRACTION))
