"""The limit of a proxy's heap: below the memory of its container, and never another one than a running proxy has."""

from __future__ import annotations

from itertools import starmap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import ContainerSettings, ProxySettings, Settings
from locallb.envoy.bootstrap import max_heap
from locallb.envoy.overload import MAX_HEAP
from locallb.envoy.rollout import BOOTSTRAP
from locallb.model.objects import Discovery
from locallb.model.snapshot import HeldProxy
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.planning.test_what_concerns_others import OWN, SHARED, A, B, snapshot

MIB = 1 << 20
SPARE = replace(OWN, proxies=ProxySettings(spares=2))
CONTAINERS, MODES = st.sampled_from(["docker", "podman"]), st.sampled_from([OWN, SHARED, SPARE])
MEMORIES = st.integers(64, 1 << 20)


def heaps(plan: Plan) -> set[int]:
    """Return the limits that the proxies' bootstraps have."""
    return {max_heap(proxy.rendered.files[BOOTSTRAP]) for proxy in plan.proxies}


def within(settings: Settings, runtime: str, memory: int) -> Settings:
    """Let proxies run in containers of so many MiB."""
    return replace(settings, runtime=runtime, container=ContainerSettings(memory=memory))


@given(MODES, CONTAINERS, MEMORIES)
def test_a_new_container_refuses_before_its_memory_ends(settings: Settings, runtime: str, memory: int) -> None:
    """With a quarter of its memory for all that is no heap; a large one as a process does."""
    (limit,) = heaps(make_plan(snapshot(A, B), within(settings, runtime, memory)))
    assert limit == min(MAX_HEAP, memory * MIB * 3 // 4)


@pytest.mark.parametrize("settings", [OWN, SHARED, SPARE], ids=["own", "shared", "spares"])
def test_processes_have_the_largest_heap(settings: Settings) -> None:
    """Whatever the limits of containers would be."""
    assert heaps(make_plan(snapshot(A, B), within(settings, "process", 64))) == {MAX_HEAP}


@given(MODES, CONTAINERS, MEMORIES, st.sampled_from([0, MAX_HEAP]) | st.integers(1, MAX_HEAP))
def test_containers_that_run_stay_as_they_are(settings: Settings, runtime: str, memory: int, heap: int) -> None:
    """Another bootstrap would be another container: what earlier versions chose is kept, beside a new proxy too."""
    settings = within(settings, runtime, memory)
    new = make_plan(snapshot(A, B), settings)
    names = [proxy.proxy.name for proxy in new.proxies if not proxy.key.cluster]
    own = [(proxy.key, Discovery.STATIC) for proxy in new.proxies if proxy.key.cluster]
    held = snapshot(
        A,
        B,
        proxies=tuple(replace(each, max_heap=heap) for each in starmap(HeldProxy, own)),
        stack_proxies=tuple(names),
        max_heaps=dict.fromkeys(names, heap),
    )
    assert heaps(make_plan(held, settings)) == {heap}
