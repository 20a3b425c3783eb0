"""Parses the traffic figures in the answers of Envoy's admin interface.

Counts by backend are always present: Envoy keeps them for any configured statistics. Bytes and latencies are statistics
of the cluster, present if the stack requests them. Pure. Not here: the queries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address

from locallb.envoy.bootstrap import REJECTIONS
from locallb.envoy.clusters import LATENCY, RECEIVED, SENT
from locallb.model.fields import JsonObject
from locallb.model.identities import place
from locallb.traffic.figures import Bin, Counts, Details, Latencies, UpstreamFigures

STATISTICS = rf"^(cluster\.[^.]*\.({RECEIVED}|{SENT}|{LATENCY})|{'|'.join(map(re.escape, REJECTIONS))})$"
"""Which statistics to ask for."""


def by_upstream(clusters: Sequence[JsonObject], statistics: Sequence[JsonObject]) -> Mapping[str, UpstreamFigures]:
    """Return the figures of each upstream by its name."""
    details = _details(statistics)
    named = {str(cluster.get("name")): cluster for cluster in clusters}
    return {name: UpstreamFigures(_backends(cluster), details.get(name)) for name, cluster in named.items()}


def rejected(statistics: Sequence[JsonObject]) -> int | None:
    """Return how many requests were rejected by their form; None where the proxy doesn't count them."""
    counts = [int(each["value"]) for each in statistics if each.get("name") in REJECTIONS]
    return sum(counts) if counts else None


def _backends(cluster: JsonObject) -> Mapping[str, Counts]:
    counted: dict[str, Counts] = {}
    for host in cluster.get("host_statuses", ()):
        with suppress(KeyError, ValueError, TypeError):  # a backend that has no address of ours
            where = host["address"]["socket_address"]
            name = place(ip_address(where["address"]), int(where["port_value"]))
            counted[name] = counted.get(name, Counts()) + _counts(host.get("stats", ()))
    return counted


def _counts(statistics: Sequence[JsonObject]) -> Counts:
    numbers = {str(statistic.get("name")): int(statistic.get("value", 0)) for statistic in statistics}
    attempts, failed = numbers.get("cx_total", 0), numbers.get("cx_connect_fail", 0)
    answered = numbers.get("rq_success", 0) + numbers.get("rq_error", 0)
    return Counts(attempts - failed, failed, numbers.get("cx_active", 0), answered, numbers.get("rq_error", 0))


def _details(statistics: Sequence[JsonObject]) -> Mapping[str, Details]:
    numbers: dict[str, dict[str, int]] = {}
    latencies: dict[str, Latencies] = {}
    for statistic in statistics:
        if "histograms" in statistic:
            latencies |= _histograms(statistic["histograms"])
        elif isinstance(statistic.get("value"), int) and statistic.get("name") not in REJECTIONS:
            _, upstream, word = str(statistic["name"]).split(".")
            numbers.setdefault(upstream, {})[word] = statistic["value"]
    return {
        upstream: Details(terms.get(SENT, 0), terms.get(RECEIVED, 0), latencies.get(upstream, Latencies()))
        for upstream, terms in numbers.items()
    }


def _histograms(stated: JsonObject) -> Mapping[str, Latencies]:
    """Read bins since the beginning, such as `{"lower_bound": 1, "width": 0.1, "count": 3}`."""
    return {
        str(histogram["name"]).split(".")[1]: Latencies(
            {
                Bin(float(total["lower_bound"]), float(total["width"])): int(total["count"])
                for total in histogram.get("totals", ())
            }
        )
        for histogram in stated.get("details", ())
    }
