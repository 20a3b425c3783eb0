"""The limit of a proxy's heap: below the memory of its container, and never another one than a running proxy has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import ContainerSettings, ProxySettings, Settings
from locallb.envoy.bootstrap import heap_bounds
from locallb.envoy.overload import MAX_HEAP
from locallb.envoy.rollout import BOOTSTRAP
from locallb.model.objects import Discovery
from locallb.model.serving import HeapBounds, ProxyTraits
from locallb.model.snapshot import HeldProxy
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.planning.two_services import OWN, SHARED, A, B, snapshot

MIB = 1 << 20
SPARE = replace(OWN, proxies=ProxySettings(spares=2))
CONTAINERS, MODES = st.sampled_from(["docker", "podman"]), st.sampled_from([OWN, SHARED, SPARE])
HELD = st.just(HeapBounds(0, ends_stalled=False)) | st.builds(HeapBounds, st.integers(1, MAX_HEAP), st.booleans())
"""Bounds that versions chose: none, and with requests that wait for their backends or don't."""
MEMORIES = st.integers(64, 1 << 20)


def heaps(plan: Plan) -> set[HeapBounds]:
    """Return the bounds that the proxies' bootstraps have."""
    return {heap_bounds(proxy.rendered.files[BOOTSTRAP]) for proxy in plan.proxies}


def within(settings: Settings, runtime: str, memory: int) -> Settings:
    """Let proxies run in containers of so many MiB."""
    return replace(settings, runtime=runtime, container=ContainerSettings(memory=memory))


@given(MODES, CONTAINERS, MEMORIES)
def test_a_new_container_refuses_before_its_memory_ends(settings: Settings, runtime: str, memory: int) -> None:
    """With a quarter of its memory for all that is no heap; a large one as a process does."""
    (limit,) = heaps(make_plan(snapshot(A, B), within(settings, runtime, memory)))
    assert limit == HeapBounds(min(MAX_HEAP, memory * MIB * 3 // 4))


@pytest.mark.parametrize("settings", [OWN, SHARED, SPARE], ids=["own", "shared", "spares"])
def test_processes_have_the_largest_heap(settings: Settings) -> None:
    """Whatever the limits of containers would be."""
    assert heaps(make_plan(snapshot(A, B), within(settings, "process", 64))) == {HeapBounds(MAX_HEAP)}


@given(MODES, CONTAINERS, MEMORIES, HELD)
def test_containers_that_run_stay_as_they_are(settings: Settings, runtime: str, memory: int, heap: HeapBounds) -> None:
    """Another bootstrap would be another container: what earlier versions chose is kept, beside a new proxy too."""
    settings = within(settings, runtime, memory)
    new = make_plan(snapshot(A, B), settings)
    names = [proxy.proxy.name for proxy in new.proxies if not proxy.key.cluster]
    own = [(proxy.key, Discovery.STATIC) for proxy in new.proxies if proxy.key.cluster]
    held = snapshot(
        A,
        B,
        proxies=tuple(HeldProxy(*each, traits=ProxyTraits(heap=heap)) for each in own),
        stack_proxies=tuple(names),
        heaps=dict.fromkeys(names, heap),
    )
    assert heaps(make_plan(held, settings)) == {heap}
