"""The wheel: what is in it, and that it is the same whoever builds it from what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from locallb import __version__
from locallb.gateway.crds import carried
from tests.support.packages import CHECKOUT, built, sources

pytestmark = [pytest.mark.checkout, pytest.mark.slow]
ONLY_IN_A_CHECKOUT = {"locallb/provider/requirements.txt"}
"""Installed by `pulumi package add` from a Git repository; a wheel names what it needs itself."""


def test_two_builds_are_equal_to_the_byte(wheel: Path, tmp_path: Path) -> None:
    """From the checkout, and from the sdist of another one."""
    sdist = built("sdist", sources(tmp_path / "source"), tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    retry = built("wheel", unpacked, tmp_path / "again")
    assert retry.name == wheel.name
    assert names(retry) == names(wheel)
    assert retry.read_bytes() == wheel.read_bytes()


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.parametrize("folder", ["locallb", "deploy", "examples"])
def test_the_wheel_has_what_a_checkout_has(wheel: Path, folder: str) -> None:
    """Code and data; what isn't code lies in `locallb/shipped`."""
    shipped = "" if folder == "locallb" else "locallb/shipped/"
    files = [path for path in (CHECKOUT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {f"{shipped}{path.relative_to(CHECKOUT)}" for path in files} - ONLY_IN_A_CHECKOUT
    assert expected <= set(names(wheel))


def test_an_installation_has_manual_pages(tool: Path) -> None:
    """Where `man` finds them, beside the program."""
    found = {path.name for path in (tool.parents[1] / "share/man").rglob("locallb*")}
    assert found >= {"locallb.1", "locallb-up.1", "locallb-configuration.7"}


def test_the_wheel_brings_no_name_but_its_own(wheel: Path) -> None:
    """A checkout has `components` as well, which may be the name of a user's own package."""
    assert {name.partition("/")[0].partition("-")[0] for name in names(wheel)} == {"locallb", "local_lb"}
    program = "import components, locallb.program; print(components.LoadBalancers is locallb.program.LoadBalancers)"
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"


def test_the_wheel_says_what_it_is_made_of(wheel: Path) -> None:
    """Each dependency that its metadata names, in the same version, and the definitions that it carries."""
    with zipfile.ZipFile(wheel) as archive:
        bill = json.loads(archive.read("locallb/shipped/sbom.cdx.json"))
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode().splitlines()
    named = [line.removeprefix("Requires-Dist: ") for line in metadata if line.startswith("Requires-Dist: ")]
    required = {requirement.partition(";")[0] for requirement in named}
    libraries = [each for each in bill["components"] if each["type"] == "library"]
    assert {f"{each['name']}=={each['version']}" for each in libraries} == required
    (data,) = (each for each in bill["components"] if each["type"] == "data")
    assert (data["name"], data["version"]) == ("sigs.k8s.io/gateway-api", carried().version)
    assert bill["metadata"]["component"]["version"] == __version__


def test_the_installed_tool_says_its_version_and_has_no_checkout_on_its_path(tool: Path, tmp_path: Path) -> None:
    """Whatever directory it is run in."""
    environment = {**os.environ, "HOME": str(tmp_path)}
    terms = [str(tool), "--version"]
    done = subprocess.run(terms, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == f"local-lb {__version__}\n"
    program = "import locallb, locallb.components, sys; print(locallb.__file__, locallb.components.__file__, *sys.path)"
    terms = [str(tool.with_name("python")), "-c", program]
    where = subprocess.run(terms, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert f"{tool.parents[1]}/lib" in where
    assert str(CHECKOUT / "locallb") not in where
    assert str(CHECKOUT) not in where.split()


def test_the_wheel_brings_the_provider_as_a_program(tool: Path, tmp_path: Path) -> None:
    """Run by the environment that it is installed into; it tells its port."""
    command = [str(tool.with_name("pulumi-resource-locallb")), "127.0.0.1:1"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as plugin:
        assert plugin.stdout
        reported = plugin.stdout.readline()
        plugin.terminate()
    assert int(reported) > 0
