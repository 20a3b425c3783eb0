"""What the tests through real traffic share: Services with pods behind them, clients, and what the status says."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.backends import SECONDS, ask
from tests.support.control_plane import Document
from tests.support.manifests import port, service
from tests.support.real_nodes import SERVED, World
from tests.support.stages import Stage
from tests.support.waiting import becomes

DUAL = {"ipFamilyPolicy": "RequireDualStack"}
LOCAL = {"externalTrafficPolicy": "Local"}


@contextmanager
def watching(play: Stage) -> Iterator[subprocess.Popen[bytes]]:
    """Run `locallb watch` until the block ends; it stops when told to, without complaint."""
    command = [str(Path(sys.executable).parent / "locallb"), "-C", str(play.root), "watch"]
    with (play.root / "watch.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield process
            process.terminate()
            assert process.wait(30) == 0, (play.root / "watch.log").read_text()
        finally:
            process.kill()
            process.wait()
            print((play.root / "watch.log").read_text())  # noqa: T201 - what a failure needs


def served(number: int, protocol: str = "TCP") -> Document:
    """Make a Service port whose NodePort the API chooses, for what every pod serves."""
    return {**port(number, 0, protocol), "targetPort": SERVED}


def make(
    world: World,
    name: str = "web",
    *ports: Document,
    app: str = "web",
    **spec: Any,  # noqa: ANN401 - fields of the API
) -> Document:
    """Create a Service for the pods of `app`, by default with port 80."""
    return world.service(service(name, *(ports or (served(80),)), selector={"app": app}, **spec))


def ingress(world: World, name: str = "web") -> list[Document]:
    """Return what the Service's status says of addresses."""
    document = world.read(name)
    assert document is not None
    entries: list[Document] = document["status"].get("loadBalancer", {}).get("ingress", [])
    return entries


def addresses(world: World, name: str = "web") -> list[str]:
    """Return the addresses in the Service's status."""
    return [str(entry["ip"]) for entry in ingress(world, name)]


def condition(world: World, name: str = "web") -> tuple[str, str]:
    """Return status and reason of our condition."""
    document = world.read(name)
    assert document is not None
    (serving,) = (
        condition
        for condition in document["status"].get("conditions", ())
        if condition["type"] == "local-lb.dev/Serving"
    )
    return serving["status"], serving["reason"]


def finalizers(world: World, name: str = "web") -> list[str]:
    document = world.read(name)
    assert document is not None
    return list(document["metadata"].get("finalizers", ()))


def answer(address: str, number: int = 80, protocol: str = "TCP", source: str = "", seconds: float = SECONDS) -> str:
    """Return the name of the pod that answers, or that of the error."""
    try:
        return ask(address, number, protocol, source=source, seconds=seconds).partition(":")[0]
    except OSError as error:
        return type(error).__name__


def silent(address: str, number: int = 80, source: str = "") -> bool:
    """Return whether a datagram gets no answer, from nobody."""
    return answer(address, number, "UDP", source, 0.5) in {"TimeoutError", "ConnectionRefusedError"}


def answers(address: str, number: int = 80, protocol: str = "TCP", times: int = 30) -> set[str]:
    """Ask many times, and give the names of all that answered."""
    return {answer(address, number, protocol) for _ in range(times)}


def follows(what: Callable[[], object], expected: object) -> None:
    """Wait until what is seen is what is expected: kube-proxy takes a moment to follow its cluster."""
    observed: list[object] = []

    def is_expected() -> bool:
        observed[:] = [what()]
        return observed == [expected]

    try:
        becomes(is_expected, f"what is seen becomes {expected}")
    except AssertionError as error:
        raise AssertionError(f"{error}, it is {observed[0]}") from None


def sees_endpoints(world: World, name: str, number: int, condition: str = "ready") -> None:
    """Wait until the EndpointSlices of a Service have so many endpoints of that condition in each of its families.

    A pod that ends is first no longer ready, then terminating while it still serves (and of use), and then gone.
    """
    becomes(lambda: world.count_endpoints(name, condition) == {number}, f"{name} has {number} {condition} endpoints")


def give_kube_proxy_time(world: World, name: str) -> None:
    """Wait until the NodePort answers on every Node; not for ever, as a test may have taken a kube-proxy away."""
    deadline = time.monotonic() + 5
    while not world.on_every_node_port(name) and time.monotonic() < deadline:
        time.sleep(0.05)


def up_and_serving(world: World, play: Stage, name: str = "web", number: int = 80, *, runs: bool = True) -> str:
    """Run `up` once the Service has an endpoint, unless somebody else does; give the address, which serves."""
    becomes(lambda: min(world.count_endpoints(name)) > 0, f"{name} has a ready endpoint")
    give_kube_proxy_time(world, name)
    if runs:
        play.up()
    address = addresses(world, name)[0]
    becomes(lambda: answer(address, number) in world.pods, f"{name} answers at {address}:{number}")
    return address
