"""corral as others get it: a wheel in a clean environment, away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DATA = ("sandbox-image", "policies", "examples", "toolbox")


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output; a failure shows everything that was printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sdist and wheel; the wheel is made from the sdist, so what one lacks the other lacks too."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that has the wheel, and this one's packages for its dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
        cwd=folder,
    )
    # The dependencies come without an index: this environment's packages stand last on the new one's path. Its own
    # editable corral stays out, because a path added by .pth files has its .pth files ignored.
    purelib = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    ours = Path(pytest.__file__).parents[1]
    (purelib / "dependencies.pth").write_text(f"{ours}\n")
    print(f"dependencies of the installed wheel come from {ours}")
    return python


def test_the_wheel_brings_the_data_and_nothing_of_the_tests(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"corral", "corral_protocol", "corral_toolbox"}
    # The examples' repositories have tests of their own: they are what the demonstration runs.
    ours = [name for name in names if not name.startswith("corral/_data/examples/")]
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []
    assert [name for name in ours if "/test_" in name or name.endswith("conftest.py")] == []
    assert {f"corral/_data/{name}" for name in DATA} <= {"/".join(name.split("/")[:3]) for name in names}


def test_the_sdist_can_be_built_from_and_names_the_licence(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        names = {name.split("/", 1)[-1] for name in tar.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "sandbox-image/Dockerfile", "toolbox/__main__.py"} <= names


def test_the_command_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    command = installed.parent / "corral"
    assert run(command, "--version", cwd=tmp_path).strip() == "0.1.0"
    assert "exec" in run(command, "--help", cwd=tmp_path)


def test_the_shipped_files_are_found_in_the_wheel_and_not_in_the_checkout(installed: Path, tmp_path: Path) -> None:
    script = (
        "import json, corral, corral_protocol\n"
        "from corral.resource import find_data\n"
        f"print(json.dumps([corral.__file__, corral_protocol.__file__, *(str(find_data(n)) for n in {DATA!r})]))"
    )
    places = json.loads(run(installed, "-c", script, cwd=tmp_path))
    home = str(installed.parents[1])
    assert [place for place in places if not place.startswith(home)] == []


def test_the_wheel_makes_the_same_image_as_the_checkout(installed: Path, tmp_path: Path) -> None:
    script = "from corral.sandbox.image import expected_tag; print(expected_tag())"
    assert run(installed, "-c", script, cwd=tmp_path) == run(sys.executable, "-c", script, cwd=tmp_path)
