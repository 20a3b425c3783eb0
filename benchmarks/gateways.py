"""What the plan of one change costs with few Gateways and with many: what the loop pays before it updates anything.

    python -m benchmarks.gateways

One HTTPRoute of a running cluster gets another hostname, again and again, beside 5 and beside 50 Gateways of ten routes
each. Prints medians of processor time, without and with what the last plan left behind, and the ratio of both sizes.
"""

import os
import statistics
import time
from typing import Any

from locallb.config.parsing.settings import parse_settings
from locallb.kubernetes.parsing.objects import ParseMemory, parse_objects
from locallb.model.gateway.objects import CONTROLLER, GROUP
from locallb.model.identities import ClusterName, Home
from locallb.model.snapshot import Access, HostFacts, Snapshot
from locallb.planning.memory import PlanMemory
from locallb.planning.plan import make_plan

SIZES, ROUTES, CHANGES = (5, 50), 10, 30
AIM = 1.1
"""Times what it costs with few Gateways."""
CLUSTER = ClusterName("c")
SETTINGS = parse_settings(
    {"sources": [{"kubernetes": {"name": "c"}}], "pools": [{"name": "p", "addresses": ["127.77.0.0/24"]}]}
)


def document(kind: str, name: str, **spec: object) -> dict[str, Any]:
    """Write an object of Gateway API."""
    metadata = {"name": name, "namespace": "n", "generation": 1}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": spec}


def route(gateway: int, number: int, host: str) -> dict[str, Any]:
    """Write a route of a Gateway."""
    rules = [{"backendRefs": [{"name": "api", "port": 8080}]}]
    parents = [{"name": f"g{gateway}"}]
    return document("HTTPRoute", f"r{gateway}-{number}", parentRefs=parents, hostnames=[host], rules=rules)


def cluster(gateways: int) -> list[dict[str, Any]]:
    """Write what a cluster has; the route that changes comes first."""
    listeners = [{"name": "http", "port": 8080, "protocol": "HTTP"}]
    made = [route(gateway, number, f"h{number}.test") for gateway in range(gateways) for number in range(ROUTES)]
    made += [document("Gateway", f"g{each}", gatewayClassName="ours", listeners=listeners) for each in range(gateways)]
    made.append(document("GatewayClass", "ours", controllerName=CONTROLLER))
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "api", "namespace": "n"}}
    return [*made, {**service, "spec": {"ports": [{"port": 8080}]}}]


def measured(gateways: int, kept: PlanMemory | None) -> float:
    """Return the median of processor seconds that a plan after a change takes; without `kept` all is made again."""
    documents, known, seconds = cluster(gateways), ParseMemory(), []
    for change in range(CHANGES):
        documents[0] = route(0, 0, f"v{change}.test")
        read = parse_objects(CLUSTER, documents, known)
        access = {CLUSTER: Access("kubeconfig", "c")}
        seen = Snapshot(Home("p", "s", "/p"), gateway_api=read.gateway_api, access=access, host=HostFacts())
        planner = kept or PlanMemory()
        began = time.process_time()
        make_plan(seen, SETTINGS, planner)
        seconds.append(time.process_time() - began)
    return statistics.median(seconds[1:])


def main() -> None:
    """Measure."""
    few, many = SIZES
    print(f"one change, {ROUTES} routes a Gateway; aim: {AIM} times; load {os.getloadavg()[0]:.1f}")
    for how in ("without memory", "with memory"):
        costs = [measured(size, PlanMemory() if how == "with memory" else None) for size in SIZES]
        print(
            f"{how}: {costs[0] * 1000:.1f} ms at {few} Gateways, {costs[1] * 1000:.1f} ms at {many}:"
            f" {costs[1] / costs[0]:.1f} times"
        )


if __name__ == "__main__":
    main()
