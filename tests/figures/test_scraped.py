"""What Prometheus scrapes of a running loop is what clients counted."""

from __future__ import annotations

import re

import pytest

from tests.figures.counted import speak
from tests.support.backends import backends
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage
from tests.support.watching import Watch, eventually, get, watching

pytestmark = pytest.mark.envoy

COUNT = 20


def value(watch: Watch, metric: str, **labels: str) -> float | None:
    """Scrape, and return the one value of a metric with these labels; None where there is none."""
    lines = [line for line in get(watch, "/metrics")[1].splitlines() if re.match(rf"{metric}[ {{]", line)]
    fitting = [line for line in lines if all(f'{label}="{word}"' in line for label, word in labels.items())]
    return float(fitting[0].rpartition(" ")[2]) if fitting else None


def configure(play: Stage, **settings: object) -> None:
    """Write the configuration of a stack that wants metrics."""
    play.configure(metrics="127.0.0.1:0", **settings)


def test_scraped_counts_are_those_of_the_clients() -> None:
    """Nothing of traffic is there before the stack asks for it, which it may do while the loop runs."""
    with stage() as play, backends() as make:
        configure(play)
        backend = make("b")
        play.write("s.yaml", node(), *(service(name, port(8080, backend.port)) for name in ("api", "web")))
        play.up()
        with watching(play) as watch:
            address = play.addresses()["n/web"]
            eventually(lambda: value(watch, "locallb_ready"), watch)
            assert value(watch, "locallb_traffic_open_connections") is None
            configure(play, trafficMetrics=True, trafficDetails=True)
            eventually(lambda: value(watch, "locallb_traffic_sent_bytes_total", name="web") == 0, watch)
            before = value(watch, "locallb_traffic_connections_total", name="web")
            assert before is not None
            for _ in range(COUNT):
                speak(address, 9)
            eventually(lambda: value(watch, "locallb_traffic_open_connections", name="web") == 0, watch)
            assert value(watch, "locallb_traffic_connections_total", name="web") == before + COUNT
            assert value(watch, "locallb_traffic_received_bytes_total", name="web") == 9 * COUNT
            configure(play, trafficMetrics=1)
            eventually(lambda: value(watch, "locallb_traffic_ports_left_out") == 1, watch)
            assert value(watch, "locallb_traffic_open_connections", name="web") is None
