"""What every registered implementation of a seam keeps, whichever it is: sources, runtimes, outputs, DNS providers.

A new one is tested here by its line in the registry alone.
"""

from __future__ import annotations

import re
import threading
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.registry import OUTPUTS, RUNTIMES, SOURCES, Registry, source_entry
from locallb.config.settings import SettingsError
from locallb.config.values import Mistakes
from locallb.desired import proxy_group
from locallb.dns.provider import PROVIDERS, DnsProvider, DnsProviderError, open_zone, written_at
from locallb.dns.updates import Update
from locallb.dns.zones import Zone
from locallb.model.desired import BALANCER, REACHABLE, ResourceKey
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, Owner, ProxyName, RunIdentity, Uid
from locallb.model.snapshot import Access, HostFacts
from locallb.outputs.output import OutputContext, output
from locallb.planning.planned import Placement, run_planner, run_types
from locallb.planning.proxy_placing import PlanContext, proxy_of_stack
from locallb.provider import KINDS
from locallb.runtimes.runtime import Runtime, runtime
from locallb.sources.source import FinderType, SourceType, finder_type, source_type
from tests.support.bind import free_port

HOME = Home("shop", "dev", "/srv/shop")
ODD: tuple[object, ...] = (None, True, 7, "x", [], {}, [None], {"a": {}})
"""Values that anybody may write."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@pytest.mark.parametrize("seam", [SOURCES, RUNTIMES, OUTPUTS])
def test_each_role_of_each_registered_word_is_there_once(seam: Registry) -> None:
    """A line that leads nowhere is found here and not by a user."""
    places = [place for roles in seam.places.values() for place in roles.values()]
    assert len(set(places)) == len(places)
    assert all(seam.load(word, role) is not None for word, roles in seam.places.items() for role in roles)


@pytest.mark.parametrize("word", tuple(SOURCES))
@pytest.mark.parametrize("value", ODD)
def test_an_entry_of_a_source_is_understood_or_refused_by_name(word: str, value: object) -> None:
    """Never an exception of another kind; what is understood names its type."""
    mistakes = Mistakes()
    parsed = source_entry(word).parse(mistakes, "sources[0]", {word: value})
    assert parsed is not None or mistakes.sentences
    assert all(sentence.startswith("local-lb:sources[0]") for sentence in mistakes.sentences)
    assert parsed is None or (parsed.type == word and hash(parsed) is not None)


@pytest.mark.parametrize("word", tuple(SOURCES))
def test_a_source_is_a_type_or_a_finder(word: str) -> None:
    """Its entry says which; only a finder's may be one that is there only once."""
    entry = source_entry(word)
    found: object = finder_type(word) if entry.finds else source_type(word)
    assert isinstance(found, FinderType if entry.finds else SourceType)
    assert entry.finds or not entry.single_entry_example
    assert source_entry(word).keys[0] == word


@pytest.mark.parametrize("word", [word for word in SOURCES if not source_entry(word).finds])
def test_follower_starts_no_thread_before_it_reads_and_may_be_stopped_twice(word: str) -> None:
    """Forgetting an unknown cluster is fine as well."""
    threads = threading.active_count()
    followed = source_type(word).follow(HOME, lambda _name: None)
    followed.forget({ClusterName("demo")})
    followed.stop()
    followed.stop()
    assert threading.active_count() == threads


@pytest.mark.parametrize("word", tuple(RUNTIMES))
def test_a_run_is_planned_desired_and_reported(word: str) -> None:
    """Equal inputs give equal runs; it names its runtime, and its identity is read back."""
    settings = parse_settings({"sources": [{"manifests": "m"}], "runtime": word})
    frame = PlanContext.of(HOME, settings, HostFacts(envoy="1.40.0"))
    planned = proxy_of_stack(ProxyName("shared-1"), frame)
    assert planned == proxy_of_stack(ProxyName("shared-1"), frame)
    run = run_planner(word).desired(planned.run, planned.proxy, planned.owner)
    assert (planned.run.runtime, run.key) == (word, ResourceKey(run_planner(word).token, "shared-1"))
    assert run_planner(word).owner(run.inputs) == planned.key or "labels" in run.inputs
    assert RunIdentity.parse(str(run.identity.value("0f3a", "77"))).runtime == word
    assert RunIdentity.parse(str(RunIdentity("0f3a", word))) == RunIdentity("0f3a", word)
    other = proxy_of_stack(ProxyName("shared-1"), replace_host(frame))
    assert proxy_group(other)[0].digest != proxy_group(planned)[0].digest


@pytest.mark.parametrize("word", tuple(RUNTIMES))
@pytest.mark.parametrize("value", ODD)
def test_a_declared_run_is_read_whatever_stands_in_it(word: str, value: object) -> None:
    """States of other versions, and anybody's previews."""
    planner = run_planner(word)
    assert run_types()[planner.token] == word
    names = ("owner", "labels", "version", "image", "networksAdvanced", "memory")
    declared = dict.fromkeys(names, value)
    assert planner.owner(declared) is None
    version, reported = planner.reported(declared)
    assert isinstance(version, str)
    assert isinstance(reported, tuple)


@pytest.mark.parametrize("word", tuple(RUNTIMES))
def test_a_runtime_keeps_the_contract_and_tells_where_to_look(word: str) -> None:
    """What it declares of ours is in the provider; a key for containers is refused where there are none."""
    retained = runtime(word)
    assert isinstance(retained, Runtime)
    assert word not in RUNTIMES.having("resource_types") or set(RUNTIMES.load(word, "resource_types")) <= set(KINDS)
    assert retained.log(RunIdentity("0f3a", word))
    config = {"sources": [{"manifests": "m"}], "runtime": word, "limits": {"memory": 128}}
    if run_planner(word).makes_containers:
        assert parse_settings(config).container.memory == 128
    else:
        with pytest.raises(SettingsError, match=r"local-lb:limits: .* only; remove the key"):
            parse_settings(config)


@pytest.mark.parametrize("word", tuple(OUTPUTS))
@pytest.mark.parametrize("live", [True, False])
def test_output_publishes_by_resources_of_the_provider(word: str, live: bool) -> None:  # noqa: FBT001 - a parameter
    """By its own types, below the load balancer and once that is proven; nothing of what no cluster has."""
    publishing = output(word)
    placed = placement() if live else replace(placement(), access=None)
    root, proof = ResourceKey(BALANCER, str(placed.key)), ResourceKey(REACHABLE, str(placed.key))
    resources = publishing.resources(placed, OutputContext(root, (proof,)))
    assert set(publishing.resource_types) <= set(KINDS)
    tokens = {f"locallb:index:{kind.__name__}" for kind in publishing.resource_types}
    assert {resource.key.type for resource in resources} <= tokens
    assert {(resource.parent, resource.needs, resource.outputs) for resource in resources} <= {(root, (proof,), None)}
    assert bool(resources) == (live and word != "names")
    assert publishing.polled <= tokens


def zones_of(word: str, value: object) -> tuple[Zone, ...]:
    """Parse a stack with one zone of a DNS provider. Raises SettingsError."""
    zone = {"zone": "lab.example", word: value}
    dns = parse_settings({"sources": [{"manifests": "m"}], "dns": {"zones": [zone]}}).dns
    return dns.zones if dns else ()


@pytest.mark.parametrize("word", tuple(PROVIDERS))
@pytest.mark.parametrize("value", ODD)
def test_a_zone_of_a_dns_provider_is_refused_by_name_if_it_has_no_server(word: str, value: object) -> None:
    """Never an exception of another kind."""
    with pytest.raises(SettingsError, match=rf"local-lb:dns\.zones\[0\]\.{word}"):
        zones_of(word, value)


@pytest.mark.parametrize("word", tuple(PROVIDERS))
def test_a_dns_provider_reports_a_server_that_does_not_answer(word: str, tmp_path: Path) -> None:
    """Its example is understood. Nothing is asked before a method is called; then one sentence names the zone.

    What answers at the places of an example may be real: each is on the loopback, and another port is asked.
    """
    (zone,) = zones_of(word, yaml.safe_load(PROVIDERS[word].example))
    assert zone.updated is not None
    own = {key: re.sub(r":\d+", f":{free_port()}", text) for key, text in zone.updated.options}
    assert all(urlsplit(f"//{own[key].rpartition('//')[2]}").hostname in LOOPBACK for key in PROVIDERS[word].place_keys)
    server = replace(zone.updated, address=ip_address("127.0.0.1"), port=free_port(), options=tuple(own.items()))
    provider = open_zone(zone.name, server, tmp_path)
    assert isinstance(provider, DnsProvider)
    assert (zone.updated.provider, provider.version()) == (word, None)
    asked = re.escape(f"zone lab.example at {written_at(server) or server}")
    for ask in (lambda: provider.records("a.lab.example"), lambda: provider.apply(Update(), 60)):
        with pytest.raises(DnsProviderError, match=asked) as caught:
            ask()
        assert "\n" not in str(caught.value)


def placement() -> Placement:
    """Place a Service of a live cluster."""
    owner = Owner(HOME, ObjectKey(ClusterName("demo"), "shop", "web"), Uid("u1"))
    return Placement(owner, (ip_address("127.77.0.5"),), (), ProxyName("p"), access=Access("/k", ContextName("c")))


def replace_host(frame: PlanContext) -> PlanContext:
    return frame._replace(host=HostFacts(envoy="1.41.0"))
