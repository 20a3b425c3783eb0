"""Golden files: what Envoy is told for typical proxies, byte for byte, and that Envoy takes it."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from locallb.envoy import Rendered, render
from tests.envoy.cases import CASES
from tests.support.envoy import Envoy, quiet, validate
from tests.support.goldens import Golden


@pytest.mark.parametrize("case", CASES)
def test_a_proxy_renders_to_its_golden_files(case: str, golden: Golden) -> None:
    """The files of each case are those in tests/goldens/envoy, byte for byte."""
    golden.check(f"envoy/{case}", render(CASES[case]).files)


def test_no_golden_case_is_stale(golden: Golden) -> None:
    """Every directory of tests/goldens/envoy belongs to a case."""
    golden.cases("envoy", CASES)


@pytest.mark.envoy
@pytest.mark.parametrize("case", CASES)
def test_envoy_validates_every_golden_configuration(case: str, tmp_path: Path, golden: Golden) -> None:
    """`envoy --mode validate` accepts the golden listeners, clusters and endpoints, without a warning."""
    files = {path.name: path.read_text() for path in golden.path(f"envoy/{case}").iterdir()}
    result = validate(tmp_path, files)
    assert (result.returncode, quiet(result.stderr)) == (0, ""), result.stdout
    assert "OK" in result.stdout


@pytest.mark.envoy
def test_validation_is_not_blind(tmp_path: Path) -> None:
    """A listener that Envoy can't take makes the validation fail: the test above does look inside."""
    files = dict(render(CASES["udp"]).files)
    files["lds.json"] = files["lds.json"].replace("max_rx_datagram_size", "max_datagram")
    result = validate(tmp_path, files)
    assert result.returncode == 1
    assert "max_datagram" in result.stderr


@pytest.mark.envoy
@pytest.mark.parametrize("case", CASES)
def test_a_running_envoy_loads_every_golden_configuration(case: str, tmp_path: Path) -> None:
    """All listeners are bound, both versions are active, nothing is logged; addresses vary for parallel runs only."""
    rendered = render(CASES[case])
    octet = secrets.randbelow(150) + 100
    files = {
        name: text.replace("127.99.4.1", f"127.{octet}.4.1").replace("fd00:99::e1", f"fd00:{octet}::e1")
        for name, text in rendered.files.items()
    }
    moved = Rendered(files, rendered.versions)
    with Envoy(tmp_path, moved) as envoy:
        envoy.wait(moved)
        assert envoy.log() == ""
