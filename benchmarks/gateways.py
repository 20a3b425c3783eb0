"""What the plan of one change costs with few Gateways and with many: what the loop pays before it updates anything.

    python -m benchmarks.gateways

One HTTPRoute of a running cluster gets a hostname that nothing has seen before, again and again, beside 5 and beside 50
Gateways of ten routes each, in turns. Prints medians of processor time, without and with what the last plan left
behind, and the ratio of both sizes. What stays is kept from Python's collector of cycles, as in the loop.
"""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from locallb.config.parsing import parse_settings
from locallb.kubernetes.object_parsing import ParseMemory, parse_objects
from locallb.model.gateway_objects import CONTROLLER, GROUP
from locallb.model.identities import ClusterName, ContextName, Home
from locallb.model.memory import AnyMemo
from locallb.model.snapshot import Access, HostFacts, Snapshot
from locallb.planning.plan import make_plan
from locallb.watch import loop as gc_tuning

SIZES, ROUTES, BLOCKS, CHANGES = (5, 50), 10, 8, 15
Document = dict[str, Any]
AIM = 1.1
"""Times what it costs with few Gateways."""
CLUSTER = ClusterName("c")
SETTINGS = parse_settings(
    {"sources": [{"kubernetes": {"name": "c"}}], "pools": [{"name": "p", "addresses": ["127.77.0.0/24"]}]}
)


def document(kind: str, name: str, **spec: object) -> Document:
    """Write an object of Gateway API."""
    metadata = {"name": name, "namespace": "n", "generation": 1}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": spec}


def route(gateway: int, number: int, host: str) -> Document:
    """Write a route of a Gateway."""
    rules = [{"backendRefs": [{"name": "api", "port": 8080}]}]
    parents = [{"name": f"g{gateway}"}]
    return document("HTTPRoute", f"r{gateway}-{number}", parentRefs=parents, hostnames=[host], rules=rules)


def cluster(gateways: int, routes: int = ROUTES) -> list[Document]:
    """Write what a cluster has, with so many routes for each Gateway; the route that changes comes first."""
    listeners = [{"name": "http", "port": 8080, "protocol": "HTTP"}]
    made = [route(gateway, number, f"h{number}.test") for gateway in range(gateways) for number in range(routes)]
    made += [document("Gateway", f"g{each}", gatewayClassName="ours", listeners=listeners) for each in range(gateways)]
    made.append(document("GatewayClass", "ours", controllerName=CONTROLLER))
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "api", "namespace": "n"}}
    return [*made, {**service, "spec": {"ports": [{"port": 8080}]}}]


@dataclass(slots=True)
class Stand:
    """A cluster of so many Gateways, of which one route changes; without `retained` all is planned again."""

    gateways: int
    retained: AnyMemo | None
    parsed: ParseMemory = field(default_factory=ParseMemory)
    documents: list[Document] = field(init=False)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.documents = cluster(self.gateways)

    def change(self, host: str) -> None:
        """Give the route a hostname, and note the processor seconds of the plan."""
        self.documents[0] = route(0, 0, host)
        read = parse_objects(CLUSTER, self.documents, self.parsed)
        access = {CLUSTER: Access("kubeconfig", ContextName("c"))}
        observed = Snapshot(Home("p", "s", "/p"), gateway_api=read.gateway_api, access=access, host=HostFacts())
        planner = self.retained or AnyMemo()
        began = time.process_time()
        make_plan(observed, SETTINGS, planner)
        self.seconds.append(time.process_time() - began)


def measured(*, with_memory: bool) -> Sequence[float]:
    """Return the median of each size, measured in blocks that take turns; no hostname comes twice, in neither."""
    stands = [Stand(size, AnyMemo() if with_memory else None) for size in SIZES]
    for block in range(BLOCKS):
        for stand in stands:
            for change in range(CHANGES):
                stand.change(f"v{block}-{change}-{stand.gateways}-{int(with_memory)}.test")
            del stand.seconds[-CHANGES]  # which finds what the other size has left of the caches
        gc_tuning.set_aside()
    return [statistics.median(stand.seconds) for stand in stands]


def main() -> None:
    few, many = SIZES
    print(f"one change, {ROUTES} routes a Gateway; aim: {AIM} times; load {os.getloadavg()[0]:.1f}")
    for how in ("without memory", "with memory"):
        costs = measured(with_memory=how == "with memory")
        print(
            f"{how}: {costs[0] * 1000:.2f} ms at {few} Gateways, {costs[1] * 1000:.2f} ms at {many}:"
            f" {costs[1] / costs[0]:.2f} times"
        )


if __name__ == "__main__":
    main()
