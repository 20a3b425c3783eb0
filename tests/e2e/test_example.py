"""The example shop and the Makefile, used by several checkouts on one host, and in one that was moved or copied."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.stages import CHECKOUT

MANIFEST = "examples/shop/manifests/nodes.yaml"
Checkout = Callable[[str], Path]


def shop(root: Path, word: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the backends, as make does."""
    command = [sys.executable, "examples/shop/backends.py", word]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    """Make checkouts; what they started is stopped at the end."""
    made: list[Path] = []

    def make(name: str) -> Path:
        root = tmp_path / name
        shutil.copytree(CHECKOUT / "examples/shop", root / "examples/shop")
        (root / MANIFEST).unlink(missing_ok=True)  # of this checkout's own shop
        made.append(root)
        return root

    yield make
    for root in tmp_path.iterdir():
        shop(root, "stop")


def answer(root: Path) -> str:
    """Ask the first node by the address that the manifest has."""
    address = (root / MANIFEST).read_text().partition("InternalIP, address: ")[2].partition(" ")[0]
    with urllib.request.urlopen(f"http://{address}:30880/", timeout=10) as reply:
        return str(reply.read().decode()).strip()


def test_two_checkouts_run_the_shop_at_once(checkout: Checkout) -> None:
    """The second one takes other addresses and says so, in its manifest too, until it stops."""
    first, second = checkout("first"), checkout("second")
    for root in (first, second):
        done = shop(root, "start")
        assert done.returncode == 0, done.stderr
        assert answer(root) == "web http on node-a"
    assert "the usual places are taken" in done.stdout
    assert (first / MANIFEST).read_text() != (second / MANIFEST).read_text()
    assert shop(first, "stop").stdout == "the shop's backends are stopped\n"
    assert answer(second) == "web http on node-a"
    assert shop(second, "stop").returncode == 0
    assert not any((root / MANIFEST).exists() for root in (first, second))


def test_the_shop_changes_no_file_that_git_tracks(checkout: Checkout) -> None:
    """Wherever its nodes are; and what Git restores takes none of them away."""
    first, second = checkout("first"), checkout("second")
    shutil.copytree(CHECKOUT / "examples/ingress", second / "examples/ingress")
    shutil.copy(CHECKOUT / ".gitignore", second / ".gitignore")
    (second / "examples/ingress/manifests/nodes.yaml").unlink(missing_ok=True)
    for terms in ("init -q", "add -A", "-c user.name=a -c user.email=a@example.com commit -q -m x"):
        subprocess.run(["git", *terms.split()], cwd=second, check=True)
    for root in (first, second):
        shop(root, "start")
    status = subprocess.run(
        ["git", "status", "--porcelain", "--", "examples"], cwd=second, capture_output=True, check=True
    )
    assert status.stdout == b""
    subprocess.run(["git", "checkout", "-q", "."], cwd=second, check=True)
    shop(first, "stop")
    assert answer(second) == "web http on node-a"
    nodes = [second / f"examples/{name}/manifests/nodes.yaml" for name in ("shop", "ingress")]
    assert len({path.read_text() for path in nodes}) == 1


def test_a_shop_of_an_earlier_version_is_started_again(checkout: Checkout) -> None:
    """It noted no addresses."""
    root = checkout("first")
    shop(root, "start")
    record = root / ".cache/shop-backends.json"
    noted = json.loads(record.read_text())
    noted.pop("addresses")
    record.write_text(json.dumps(noted))
    (root / MANIFEST).unlink()
    assert shop(root, "start").returncode == 0
    assert answer(root) == "web http on node-a"


def test_a_copy_stops_nothing_of_the_original(checkout: Checkout) -> None:
    """Although it has a copy of the note of what runs."""
    original = checkout("original")
    shop(original, "start")
    copy = original.with_name("copy")
    shutil.copytree(original, copy)
    assert shop(copy, "status").stdout == "not running\n"
    assert shop(copy, "stop").stdout == "the shop's backends don't run\n"
    assert answer(original) == "web http on node-a"


def test_a_renamed_checkout_stops_its_own(checkout: Checkout) -> None:
    """What runs works in the same directory, whatever that is called."""
    before = checkout("before")
    shop(before, "start")
    after = before.rename(before.with_name("after"))
    assert shop(after, "stop").stdout == "the shop's backends are stopped\n"


def test_a_port_that_is_taken_everywhere_is_reported_with_its_holder(checkout: Checkout) -> None:
    """One sentence with what to do; nothing is written."""
    root = checkout("first")
    with socket.create_server(("0.0.0.0", 0)) as claimed:
        number = claimed.getsockname()[1]
        text = (root / "examples/shop/backends.py").read_text().replace("30880", str(number))
        (root / "examples/shop/backends.py").write_text(text)
        done = shop(root, "start")
    assert done.returncode == 1
    assert f":{number}/TCP is taken by" in done.stderr
    assert "end that process" in done.stderr
    assert "(process " in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (root / MANIFEST).exists()


@pytest.mark.parametrize(("shebang", "retry"), [("/elsewhere/.venv/bin/python", True), ("{}/.venv/bin/python", False)])
def test_a_moved_checkout_makes_its_venv_again(tmp_path: Path, shebang: str, *, retry: bool) -> None:
    """The commands in it would be another directory's, or nobody's."""
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, tmp_path / name)
    command = tmp_path / ".venv/bin/locallb"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!{shebang.format(tmp_path)}\n")
    (tmp_path / ".venv/runtime").touch()
    done = subprocess.run(["make", "-n", "setup"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ("rm -rf .venv" in done.stdout) is retry
    assert ("-m venv .venv" in done.stdout) is retry
