"""What one scoped update of the embedded engine costs, as the state grows; and what a thousand of them leave behind.

    python -m benchmarks.engine

A stack of 10, 100 and 1,000 load balancers (eight resources each) is made without its world; then one of them is
updated alone, without and with a change, many times in one process. Prints medians in milliseconds, memory and threads.
"""

import gc
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pulumi
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import (
    CreateRequest,
    CreateResponse,
    DeleteRequest,
    DiffRequest,
    DiffResponse,
    Provider,
    UpdateRequest,
    UpdateResponse,
)

from locallb.engine.core.declared import only
from locallb.engine.core.events import Result
from locallb.engine.engine import Engine
from locallb.engine.state.project import load_project
from locallb.engine.state.urns import root_urn

REPETITIONS = 1000
KINDS = ("LoopbackAddress", "Reachable", "ServiceStatus", "ServiceClaim")


class Nothing(Provider):
    """A provider without a world: what is measured is the engine."""

    async def diff(self, request: DiffRequest) -> DiffResponse:
        keys = [key for key, value in request.new_inputs.items() if request.old_state.get(key) != value]
        return DiffResponse(changes=bool(keys), diffs=keys)

    async def create(self, request: CreateRequest) -> CreateResponse:
        return CreateResponse(request.name, {**request.properties, "made": PropertyValue("yes")})

    async def update(self, request: UpdateRequest) -> UpdateResponse:
        return UpdateResponse({**request.news, "made": PropertyValue("yes")})

    async def delete(self, request: DeleteRequest) -> None:
        del request


def declare(name: str, port: int) -> None:
    """Declare one load balancer with its proxy: two components and six resources."""

    def resource(kind: str, parent: pulumi.Resource, after: list[pulumi.Resource]) -> pulumi.CustomResource:
        options = pulumi.ResourceOptions(parent=parent, depends_on=after)
        inputs = {"name": name, "port": port, "text": "x" * 200, "made": None}
        return pulumi.CustomResource(f"bench:index:{kind}", name, inputs, options)

    balancer = pulumi.ComponentResource("bench:index:LoadBalancer", name, {"digest": str(port)})
    proxy = pulumi.ComponentResource("bench:index:Proxy", name, {})
    before: list[pulumi.Resource] = []
    for kind in ("ProxyConfig", "EnvoyProcess"):
        before = [resource(kind, proxy, before)]
    for kind in KINDS:
        before = [resource(kind, balancer, before)]
    balancer.register_outputs({})
    proxy.register_outputs({})


def scope_of(name: str) -> list[str]:
    """Return the two roots of a load balancer."""
    return [root_urn("bench", "dev", f"bench:index:{kind}", name) for kind in ("LoadBalancer", "Proxy")]


def make_engine(folder: Path) -> Engine:
    (folder / ".state").mkdir()
    (folder / "Pulumi.yaml").write_text("name: bench\nruntime: python\nbackend: {url: 'file://./.state'}\n")
    (folder / "Pulumi.dev.yaml").write_text("config: {}\n")
    return Engine(load_project(folder, {}), "dev", {"bench": Nothing()})


def grow(folder: Path, size: int) -> None:
    """Make the state of many load balancers from that of one."""
    path = folder / ".state" / ".pulumi" / "stacks" / "bench" / "dev.json"
    whole = json.loads(path.read_text())
    latest = whole["checkpoint"]["latest"]
    shared = [item for item in latest["resources"] if not item["urn"].endswith("::lb0")]
    text = json.dumps([item for item in latest["resources"] if item["urn"].endswith("::lb0")])
    latest["resources"] = shared + [item for n in range(size) for item in json.loads(text.replace("lb0", f"lb{n}"))]
    path.write_text(json.dumps(whole, separators=(",", ":")))


def measure(update: Callable[[int], Result], repetitions: int) -> tuple[float, float]:
    """Give median and 95th percentile, in milliseconds."""
    times = []
    for number in range(repetitions):
        start = time.perf_counter()
        result = update(number)
        times.append((time.perf_counter() - start) * 1000)
        assert result.ok, result.diagnostics
    ordered = sorted(times)
    return statistics.median(ordered), ordered[int(len(ordered) * 0.95)]


def resident() -> float:
    """Return the process's resident memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def run(size: int, repetitions: int) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        engine = make_engine(folder)
        assert engine.up(lambda: declare("lb0", 1)).ok
        grow(folder, size)
        scope = only(scope_of("lb0"))
        start = time.perf_counter()
        engine.up(lambda: declare("lb0", 1), scope=scope)
        load = (time.perf_counter() - start) * 1000
        same, same_tail = measure(lambda _n: engine.up(lambda: declare("lb0", 1), scope=scope), 100)
        changed, changed_tail = measure(lambda n: engine.up(lambda: declare("lb0", n + 2), scope=scope), 30)
        print(f"{size:5} load balancers: no-op p50 {same:5.1f} p95 {same_tail:5.1f} ms, change of 8 resources ", end="")
        print(f"p50 {changed:5.1f} p95 {changed_tail:5.1f} ms, with reading the state {load:6.1f} ms")
        if repetitions:
            keep_going(lambda: engine.up(lambda: declare("lb0", 1), scope=scope), repetitions)
    finally:
        shutil.rmtree(folder)


def keep_going(update: Callable[[], Result], repetitions: int) -> None:
    """Show memory and threads before and after many updates."""
    for number in range(repetitions + 1):
        if number in {100, repetitions // 2, repetitions}:
            gc.collect()
            print(f"      after {number:4} updates: {resident():6.1f} MiB, {threading.active_count()} threads")
        update()


if __name__ == "__main__":
    run(1, 0)  # warm up
    for balancers in (10, 100, 1000):
        run(balancers, REPETITIONS if balancers == REPETITIONS else 0)
