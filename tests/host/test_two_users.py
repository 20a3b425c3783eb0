"""Two users of a host without any rights follow the README, with three stacks each: they never meet."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest

from locallb.sources.held import held_by, read_resources
from tests.support.host import CHECKOUT, LOCALLB, PRIVATE, PYTHON, Done, Namespace

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.root(only="can act as other users")]
FIRST, SECOND = 23461, 23462
STACKS = ("dev", "lab", "more")
NAMES = "  local-lb:dns: {zones: [{zone: test, embedded: true}]}\n"
ASK = """
import json, socket, sys, urllib.request
for place in json.load(sys.stdin):
    if "name" in place:
        labels = b"".join(bytes([len(part)]) + part.encode() for part in place["name"].split("."))
        head = b"\\x12\\x34\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00"
        question = head + labels + b"\\x00\\x00\\x01\\x00\\x01"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(5)
            client.sendto(question, tuple(place["server"]))
            print(socket.inet_ntoa(client.recv(512)[-4:]))
    else:
        print(urllib.request.urlopen(place["url"], timeout=5).read().decode().strip())
"""


@dataclass(frozen=True)
class User:
    """A user with a checkout in a home of their own."""

    number: int
    home: Path
    space: Namespace

    @property
    def checkout(self) -> Path:
        return self.home / "local-lb"

    def run(self, *terms: str, given: str = "") -> Done:
        """Run a command in the checkout, with nothing but a home."""
        script = f'cd {self.checkout}; exec env -u XDG_STATE_HOME -u LOCALLB_LEDGER HOME={self.home} "$@"'
        command = [*("sh", "-c", script, "sh"), *terms] if not given else ["sh", "-c", script, "sh", *terms, given]
        return self.space.run(*command, user=self.number, PYTHONDONTWRITEBYTECODE="1")

    def up(self) -> list[Done]:
        """Do what `make up` does, and the same for two more stacks."""
        started = self.run(PYTHON, "examples/shop/backends.py", "start")
        return [started, *(self.run(*LOCALLB, "--stack", stack, "up", "--yes") for stack in STACKS)]

    def rows(self, stack: str) -> list[dict[str, object]]:
        """Return the load balancers of a stack."""
        rows: list[dict[str, object]] = self.run(*LOCALLB, "--stack", stack, "status", "--json").json
        return rows

    def server(self, stack: str) -> tuple[str, int]:
        """Return where the stack's name server is."""
        state = self.checkout / ".state/.pulumi/stacks/local-lb" / f"{stack}.json"
        ((address, port),) = held_by(read_resources(state)).name_servers
        return str(address), port

    def end(self) -> None:
        for stack in STACKS:
            self.run(*LOCALLB, "--stack", stack, "destroy", "--yes")
        self.run(PYTHON, "examples/shop/backends.py", "stop")


@pytest.fixture
def users() -> Iterator[tuple[User, User]]:
    """Return two users of one host, which nobody has prepared."""
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    root.chmod(0o755)
    for name in ("etc/sysctl.d", "etc/systemd/system"):
        (root / name).mkdir(parents=True)
    space = Namespace(root, PRIVATE)
    made = tuple(User(number, root / str(number), space) for number in (FIRST, SECOND))
    for user in made:
        (user.checkout / "stacks").mkdir(parents=True)
        (user.checkout / ".state").mkdir()
        for name in ("Pulumi.yaml", "__main__.py"):
            shutil.copy(CHECKOUT / name, user.checkout / name)
        shutil.copytree(CHECKOUT / "examples/shop", user.checkout / "examples/shop")
        (user.checkout / "examples/shop/manifests/nodes.yaml").unlink(missing_ok=True)
        for stack in STACKS:
            text = (CHECKOUT / "stacks/Pulumi.dev.yaml").read_text() + NAMES
            (user.checkout / f"stacks/Pulumi.{stack}.yaml").write_text(text)
        for path in (user.home, *user.home.rglob("*")):
            os.chown(path, user.number, user.number)
    try:
        yield made[0], made[1]
    finally:
        for user in made:
            user.end()
        space.close()
        shutil.rmtree(root, ignore_errors=True)


def test_two_users_with_three_stacks_each_never_meet(users: tuple[User, User]) -> None:
    """One after the other, and again at once: no message names the other, no address is shared, everything answers."""
    ran = [user.up() for user in users]
    with ThreadPoolExecutor(len(users)) as threads:
        ran += threads.map(User.up, users)
    for number, dones in enumerate(ran):
        other = users[1 - number % 2]
        for done in dones:
            reported = done.out + done.err
            assert done.code == 0, reported
            for word in (str(other.home), str(other.number), "in use", "PortInUse", "another user", "warning"):
                assert word not in reported, reported
    claimed: list[str] = []
    for user in users:
        for stack in STACKS:
            rows, server = user.rows(stack), user.server(stack)
            assert {row["state"] for row in rows} == {"serving"}
            addresses = {str(row["name"]): str(row["addresses"][0]) for row in rows}  # type: ignore[index]  # a list
            questions: list[dict[str, object]] = [
                *[dict[str, object](url=f"http://{addresses[name]}:8080/") for name in ("web", "api")],
                *[dict[str, object](name=f"{name}.shop.shop.test", server=server) for name in addresses],
            ]
            answers = _requested(user, questions)
            assert [answer.rpartition(" on ")[0] for answer in answers[:2]] == ["web http", "api http"]
            assert answers[2:] == [*addresses.values()]
            claimed += [*addresses.values(), server[0]]
    assert len(claimed) == len({*claimed}) == len(users) * len(STACKS) * 4
    nodes = [(user.checkout / "examples/shop/manifests/nodes.yaml").read_text() for user in users]
    assert nodes[0] != nodes[1], "each asks pods of their own"
    assert all(ip_address(address).is_loopback for address in claimed)


def _requested(user: User, questions: list[dict[str, object]]) -> list[str]:
    script = f"echo '{json.dumps(questions)}' | {PYTHON} -c \"$1\""
    done = user.run("sh", "-c", script, "sh", given=ASK)
    assert done.code == 0, done.err
    return done.out.splitlines()
