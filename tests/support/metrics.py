"""Reading values of metrics as Prometheus does."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from locallb.cli.watching.metrics import Metrics


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Read one value from what Prometheus would get."""
    text, kind = metrics.text("")
    assert kind.startswith("text/plain")
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    return None
