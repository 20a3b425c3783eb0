"""Requests a second through an HTTPRoute, beside an Envoy whose HTTP was configured by hand: as `throughput`.

python -m benchmarks.http [--runs 20] [--seconds 1]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from ipaddress import ip_address

from benchmarks.contestants import Contestant, EnvoyWithFiles, Files
from benchmarks.figures import report_to, result, spreads, table
from benchmarks.throughput import CLIENTS, CONNECTIONS, HAND, backend, measure, ratios
from benchmarks.traffic import ADDRESS
from locallb.envoy import render
from locallb.model.faults import Fault
from locallb.model.http_routes import DirectResponse, Forward, HttpRoute, Match, PathKind, PathMatch, Target
from locallb.model.http_serving import Chain, HttpBackends, HttpListener, HttpRoutes, VirtualHost
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, ConnectCheck, Proxy, Upstream

_MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
ROUTES = 100
"""Those before the one that is asked for, in the last contestant."""


def by_hand(ports: list[int], place: tuple[str, int]) -> Files:
    """Write what somebody writes who has one proxy, one route and one backend."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": "web"}}
    http = {
        "@type": _MANAGER,
        "stat_prefix": "http",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["bench"], "routes": [route]}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": _ROUTER}}],
    }
    chains = [{"filters": [{"name": "http", "typed_config": http}]}]
    listeners = [{"name": str(port), "address": _at(ADDRESS, port), "filter_chains": chains} for port in ports]
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": _at(*place)}}]}]
    cluster = {"name": "web", "load_assignment": {"cluster_name": "web", "endpoints": endpoints}}
    return {"bootstrap.json": json.dumps({"static_resources": {"listeners": listeners, "clusters": [cluster]}})}


def routed(  # noqa: PLR0913 - what a listener may have, each with a default
    ports: list[int],
    place: tuple[str, int],
    others: int = 0,
    *,
    measured: bool = False,
    log: str = "",
    may_fail: bool = False,
    fault: Fault | None = None,
) -> Files:
    """Render the same as local-lb does, behind so many other routes."""
    more = (HttpRoute(Match(PathMatch(PathKind.PREFIX, f"/{n}")), DirectResponse(404)) for n in range(others))
    routes = (*more, HttpRoute(Match(PathMatch(PathKind.PREFIX, "/")), Forward((Target(UpstreamName("web")),))))
    chain = Chain(HttpRoutes((VirtualHost(("bench",), routes),)))
    backends = (Backend.at(ip_address(place[0]), place[1]),)
    led_to, http = UpstreamName("web"), HttpBackends()
    upstream = Upstream(led_to, Protocol.TCP, backends, health=ConnectCheck(), http=http, measured=measured)
    listeners = tuple(
        HttpListener(ip_address(ADDRESS), port, (chain,), log=log, may_fail=may_fail, fault=fault) for port in ports
    )
    name, identity = ProxyName("bench/gateways/default/web"), ProxyId("0123456789ab")
    proxy = Proxy(name, identity, Discovery.EDS, (), (upstream,), http=listeners, may_serve_http=True)
    return render(proxy).files


def _at(address: str, port: int) -> dict[str, object]:
    return {"socket_address": {"address": address, "port_value": port}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each contestant (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run (default: %(default)s)")
    args = parser.parse_args()
    contestants: list[Contestant] = [
        EnvoyWithFiles(HAND, by_hand),
        EnvoyWithFiles("an HTTPRoute", routed),
        EnvoyWithFiles(f"behind {ROUTES} others", lambda ports, place: routed(ports, place, ROUTES)),
    ]
    with multiprocessing.Pool(CLIENTS) as clients, backend():
        figures = measure(clients, contestants, args.runs, args.seconds)
    distributions = {name: spreads(measured.values) for name, measured in figures.items()}
    compared, failed = ratios(figures), {name: measured.failed for name, measured in figures.items()}
    report_to(table(distributions, ""), f"ratios to {HAND}: {compared}", f"connections that broke: {failed}")
    notes = [f"{CONNECTIONS} connections in {CLIENTS} client processes, on the same cores as proxy and backend"]
    result("http", notes, runs=args.runs, figures=distributions, ratios=compared, failed=failed)


if __name__ == "__main__":
    main()
