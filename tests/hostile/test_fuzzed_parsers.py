"""Whatever stands in a file, each parser gives data or its own error, never another exception; a fixed budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locallb.config.parsing import parse_settings
from locallb.config.settings import SettingsError
from locallb.engine.state.checkpoint import check_state
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import load_config, load_project
from locallb.host import setup_changes as setup
from locallb.kubernetes.object_parsing import parse_objects
from locallb.ledger.ledger import Ledger
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, ProxyId
from locallb.sources import SourceError
from locallb.sources.held import held_by, read_resources
from locallb.sources.readings import ReadCache
from locallb.storage.proxy_directories import Proxies

pytestmark = pytest.mark.slow
BUDGET = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WORDS = st.sampled_from([
    "Service", "v1", "LoadBalancer", "metadata", "spec", "ports", "port", "name", "10.0.0.1", "10.0.0.0/8", "::1",
    "127.77.0.0-127.77.0.9", "local-lb.dev/addresses", "IPv4", "IPv6", "../x", "", "\x00", "\ud7ff", "9" * 400,
])  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20) | WORDS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | WORDS, inner, max_size=5),
    max_leaves=25,
)
FIELDS = (
    "ports", "ipFamilies", "ipFamilyPolicy", "loadBalancerIP", "loadBalancerSourceRanges", "sessionAffinity",
    "externalTrafficPolicy", "healthCheckNodePort", "loadBalancerClass", "clusterIPs", "clusterIP",
)  # fmt: skip
SPECS = st.fixed_dictionaries({"type": st.just("LoadBalancer")}, optional=dict.fromkeys(FIELDS, VALUES))
SERVICES = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.sampled_from(["Service", "Node", "EndpointSlice", "List"])},
    optional={"metadata": VALUES, "spec": SPECS | VALUES, "status": VALUES, "items": VALUES, "endpoints": VALUES},
)
KEYS = ("sources", "runtime", "network", "pools", "pins", "classes", "proxies", "image", "x")
CONFIGURATIONS = st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, VALUES))
TEXTS = st.text(max_size=200) | VALUES.map(lambda value: json.dumps(value, default=str))


def complaint(work: Callable[[], object]) -> str:
    """Do it, and give the words of our own errors; any other exception fails the test."""
    try:
        work()
    except (ClientError, EngineError, SettingsError, SourceError) as error:
        return str(error) or "(no words)"
    return ""


@BUDGET
@given(st.lists(SERVICES | VALUES, max_size=4))
def test_any_objects_become_services_or_rejections(objects: list[object]) -> None:
    """What can't be understood has a sentence that fits on a line."""
    parsed = parse_objects(ClusterName("c"), objects)
    for malformed in parsed.malformed:
        assert str(malformed.problem).isprintable()
        assert len(malformed.problem.message) < 1_000


@BUDGET
@given(CONFIGURATIONS)
def test_any_configuration_is_settings_or_sentences(given_config: dict[str, object]) -> None:
    """Each mistake in a sentence of its own."""
    assert all(line.isprintable() for line in complaint(lambda: parse_settings(given_config)).splitlines())


@BUDGET
@given(TEXTS)
def test_any_state_is_read_or_complained_about(text: str) -> None:
    """By the engine's check and by the sources' reader."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dev.json"
        path.write_text(text, errors="replace")
        check_state(path)
        said = complaint(lambda: held_by(read_resources(path)))
        assert not said or str(path) in said or "the stack's state has a resource" in said


@BUDGET
@given(TEXTS)
def test_any_claim_is_a_claim_or_a_problem(text: str) -> None:
    """A damaged one keeps its address and is told."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "127.77.0.5~0123456789abcdef.json"
        path.write_text(text, errors="replace")
        ledger = Ledger(Path(folder))
        assert len(ledger.claims()) == 1
        assert path.exists()
        ledger.problems()


@BUDGET
@given(TEXTS)
def test_any_notes_of_a_proxy_are_read_or_ignored(text: str) -> None:
    """Whose it is and what runs there is then unknown."""
    with TemporaryDirectory() as folder:
        directory = Path(folder) / "0123456789ab"
        directory.mkdir()
        for name in ("owner.json", "process.json"):
            (directory / name).write_text(text, errors="replace")
        proxies = Proxies(Path(folder))
        assert len(proxies.list()) == 1
        proxies.recorded(ProxyId("0123456789ab"))


@BUDGET
@given(TEXTS)
def test_any_kept_reading_is_used_or_refused(text: str) -> None:
    """Then the source's error names the file."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "c.json").write_text(text, errors="replace")
        assert "c.json" in (complaint(lambda: ReadCache(Path(folder)).load(ClusterName("c"))) or "c.json")


@BUDGET
@given(TEXTS)
def test_any_record_of_host_setup_is_read_or_refused(text: str) -> None:
    """Nothing is guessed about what was on the host."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "host.json"
        path.write_text(text, errors="replace")
        assert str(path) in (complaint(lambda: setup.read_record(path)) or str(path))


@BUDGET
@given(st.text(max_size=120))
def test_any_project_and_stack_file_is_used_or_refused(text: str) -> None:
    """With an error of the engine, which names the file."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "Pulumi.yaml").write_text(text, errors="replace")
        complaint(lambda: load_project(root, {}))
        (root / "Pulumi.yaml").write_text("name: p\nruntime: python\nbackend: {url: file://.}\n")
        (root / "Pulumi.dev.yaml").write_text(text, errors="replace")
        complaint(lambda: load_config(load_project(root, {}), "dev"))
