"""What is built and installed ships its Lua steps: as a wheel, from an sdist, and editable."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEPS = {f"{name}.lua" for name in ("control", "peek", "record", "report", "session", "snapshot")}
PROBE = """
import sys
sys.path[:0] = {paths!r}
import loopfence
from loopfence.store import scripts
print(loopfence.__file__)
print(scripts._folder())
for step in (scripts.RECORD, scripts.PEEK, scripts.REPORT, scripts.CONTROL, scripts.SNAPSHOT):
    print(step.sha)
"""


def build(*options: str, source: Path, to: Path) -> Path:
    """What `python -m build` makes of a source tree with the build tools that are installed."""
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(to), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=110)
    (made,) = to.iterdir()
    return made


def steps_of(paths: list[Path]) -> tuple[Path, Path, list[str]]:
    """Where a fresh interpreter that has nothing else finds loopfence and its steps, and what they are."""
    code = PROBE.format(paths=[str(path) for path in paths])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=os.sep, env=environment, capture_output=True, text=True, check=True
    )
    package, folder, *shas = done.stdout.splitlines()
    return Path(package).parent, Path(folder), shas


@pytest.fixture(scope="module")
def checkout() -> list[str]:
    """The digests of the checkout's own steps."""
    package, folder, shas = steps_of([ROOT / "src"])
    assert (package, folder) == (ROOT / "src" / "loopfence", ROOT / "lua")
    return shas


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("--wheel", source=ROOT, to=tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("--sdist", source=ROOT, to=tmp_path_factory.mktemp("sdist"))


def unpack(wheel: Path, to: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(to)
    return to


def test_the_wheel_holds_the_steps_the_licence_and_the_type_marker(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.removeprefix("loopfence/lua/") for name in names if name.endswith(".lua")} == STEPS
    assert "loopfence/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {
        "loopfence",
        next(n for n in names if ".dist-info" in n).split("/")[0],
    }


def test_an_installed_wheel_loads_its_own_steps(wheel: Path, checkout: list[str], tmp_path: Path) -> None:
    site = unpack(wheel, tmp_path / "site")
    assert steps_of([site]) == (site / "loopfence", site / "loopfence" / "lua", checkout)


def test_a_wheel_built_from_the_sdist_loads_the_same_steps(sdist: Path, checkout: list[str], tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    assert {path.name for path in (source / "lua").iterdir()} == STEPS
    assert (source / "tests" / "core" / "oracle.py").is_file()
    site = unpack(build("--wheel", source=source, to=tmp_path / "wheel"), tmp_path / "site")
    assert steps_of([site]) == (site / "loopfence", site / "loopfence" / "lua", checkout)


def test_an_editable_install_loads_the_steps_of_its_checkout(checkout: list[str], tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", *command, "--editable", str(ROOT)], check=True, timeout=110)
    (link,) = site.glob("*.pth")
    assert steps_of([Path(line) for line in link.read_text().splitlines()]) == (
        ROOT / "src" / "loopfence",
        ROOT / "lua",
        checkout,
    )
