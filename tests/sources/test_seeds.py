"""Several seeds in one stack: each has what it found in a place of its own, and what two have is one shoot."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from locallb.config.parsing import parse_settings
from locallb.config.registry import Source
from locallb.config.settings import Settings, SettingsError
from locallb.kubernetes.api.kubeconfig import UNWRITTEN, connection
from locallb.model.identities import ClusterName, ContextName, Home
from locallb.model.routes import PodRoute
from locallb.model.snapshot import Access
from locallb.sources.entries import GardenerFinder
from locallb.sources.found import find_sources
from locallb.sources.gardener import ADMIN
from locallb.sources.readings import ReadCache
from locallb.sources.source import SourceRead
from locallb.storage.paths import stack_directory
from tests.support.seed_api import PODS, SeedApi, kubeconfig, served_seed

ONE, OTHER = (GardenerFinder(ClusterName(name), f"{name}.kubeconfig") for name in ("seed", "other"))
A, B, C = "shoot--local--a", "shoot--local--b", "shoot--local--c"


@pytest.fixture
def seeds(tmp_path: Path) -> Iterator[tuple[SeedApi, SeedApi]]:
    """Serve two seeds, each with a shoot."""
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(served_seed(tmp_path / f"{name}.kubeconfig", uid=name)) for name in ("seed", "other")
        )
        put(one, A)
        put(other, B)
        yield one, other
        UNWRITTEN.clear()


def put(seed: SeedApi, shoot: str) -> None:
    """Make a shoot whose server tells on which seed it is."""
    seed.put_shoot(shoot)
    seed.put_secret(shoot, ADMIN, "kubeconfig", kubeconfig(f"{seed.url}/{shoot}", {"token": "t"}))


def find(
    root: Path, *finders: GardenerFinder, keep: bool = True
) -> tuple[dict[ClusterName, Source], tuple[SourceRead, ...]]:
    settings = Settings((), (), finders=finders or (ONE, OTHER))
    sources, reported = find_sources(Home("p", "dev", str(root)), settings, keep=keep)
    return {source.cluster: source for source in sources}, reported


def servers(found: dict[ClusterName, Source]) -> dict[str, str]:
    shoots = ((name, source) for name, source in found.items() if name.startswith("shoot--"))
    pod_paths = {name: Access(source.kubeconfig, ContextName(name)) for name, source in shoots}  # type: ignore[attr-defined]
    return {name: connection(way).server for name, way in pod_paths.items()}


def retained(root: Path) -> Path:
    return stack_directory(Home("p", "dev", str(root)))


def test_each_seed_has_its_own_shoots(seeds: tuple[SeedApi, SeedApi], tmp_path: Path) -> None:
    """A seed comes before its shoots; a preview finds the same and writes nothing."""
    found, reported = find(tmp_path, keep=False)
    assert (list(found), retained(tmp_path).exists()) == (["seed", A, "other", B], False)
    where = {A: f"{seeds[0].url}/{A}", B: f"{seeds[1].url}/{B}"}
    assert servers(found) == where
    assert (find(tmp_path), servers(find(tmp_path)[0])) == ((found, reported), where)
    assert [read.reading.stale for read in reported] == [(), ()]


def test_a_second_seed_moves_nothing_of_the_first(seeds: tuple[SeedApi, SeedApi], tmp_path: Path) -> None:
    """Wherever it stands in the list: paths are in states and stay, also those that an earlier version wrote."""
    del seeds
    (first,) = (source for name, source in find(tmp_path, ONE)[0].items() if name == A)
    for finders in ((ONE, OTHER), (OTHER, ONE)):
        assert find(tmp_path, *finders)[0][ClusterName(A)] == first
    shutil.rmtree(retained(tmp_path) / "gardener-other")
    (retained(tmp_path) / "gardener/called").unlink()
    assert find(tmp_path, ONE, OTHER)[0][ClusterName(A)] == first
    found, reported = find(tmp_path, OTHER)
    assert (list(found), [read.reading.stale for read in reported]) == (["other", B], [()])


@pytest.mark.parametrize("silent", [0, 1])
def test_a_seed_that_is_silent_takes_nothing_away_from_either(
    seeds: tuple[SeedApi, SeedApi], tmp_path: Path, silent: int
) -> None:
    """Its own shoots count as last found, and the other's as they are."""
    found, _ = find(tmp_path)
    seeds[silent].refused = 503
    put(seeds[1 - silent], C)
    retry, reported = find(tmp_path)
    assert retry == found | {ClusterName(C): retry[ClusterName(C)]}
    assert [bool(read.reading.stale) for read in reported] == [silent == 0, silent == 1]


def test_a_silent_seed_without_shoots_stops_no_stack(seeds: tuple[SeedApi, SeedApi], tmp_path: Path) -> None:
    """It has been served, so nothing is what was found last there."""
    find(tmp_path)
    seeds[0].drop_shoot(A)
    found, _ = find(tmp_path)
    assert list(found) == ["seed", "other", B]
    seeds[0].refused = 503
    retry, reported = find(tmp_path)
    assert (retry, [bool(read.reading.stale) for read in reported]) == (found, [True, False])


def test_a_shoot_that_two_seeds_have_is_served_as_the_first_has_it(
    seeds: tuple[SeedApi, SeedApi], tmp_path: Path
) -> None:
    """As while its control plane moves: it isn't gone as long as one has it, and what was read of it stays."""
    found, _ = find(tmp_path)
    put(seeds[1], A)
    cache = ReadCache(retained(tmp_path))
    cache.keep(ClusterName(A), {A: ()})
    both, (_, reported) = find(tmp_path)
    assert both == found
    (notice,) = reported.reading.parsed.notices
    assert notice.startswith(f"{A} is found by seed and by other of gardener; it is served as seed has it")
    seeds[0].drop_shoot(A)
    moved, told_then = find(tmp_path)
    assert servers(moved)[A] == f"{seeds[1].url}/{A}"
    assert cache.load(ClusterName(A)) is not None
    assert not any(read.reading.parsed.notices for read in told_then)
    seeds[1].drop_shoot(A)
    assert A not in find(tmp_path)[0]
    assert cache.load(ClusterName(A)) is None


def test_nodes_are_found_in_the_seed_that_has_them(seeds: tuple[SeedApi, SeedApi], tmp_path: Path) -> None:
    """A control plane may be elsewhere; the same address on another kind node is another way, each shoot's own."""
    one, other = seeds
    one.put_machine(B, "m1", ["10.0.7.2"], ["172.18.0.3"])
    one.put_machine(A, "m1", ["10.0.7.3"], ["172.18.0.3"])
    pod_paths = {name: (PodRoute.parse(f"{address}/32 via 172.18.0.3"),) for name, address in MACHINES.items()}
    changes: tuple[Callable[[], None], ...] = (lambda: None, lambda: setattr(one, "refused", 503))
    for change in changes:
        change()
        found, reported = find(tmp_path)
        assert {name: found[ClusterName(name)].node_routes for name in MACHINES} == pod_paths
        assert {name: routes for read in reported for name, routes in read.node_routes.items() if routes} == pod_paths
    one.refused, one.objects[PODS] = 0, []
    other.put_machine(B, "m2", ["10.0.7.3"], ["172.18.0.9"])
    found, _ = find(tmp_path)
    assert found[ClusterName(A)].node_routes == ()
    assert found[ClusterName(B)].node_routes == (PodRoute.parse("10.0.7.3/32 via 172.18.0.9"),)
    other.put_machine(A, "m3", ["10.0.7.4"], ["172.18.0.9"])
    for one.refused in (0, 503):
        assert find(tmp_path)[0][ClusterName(A)].node_routes == (PodRoute.parse("10.0.7.4/32 via 172.18.0.9"),)


MACHINES = {A: "10.0.7.3", B: "10.0.7.2"}


@pytest.mark.parametrize("odd", ["../x", "/etc", "x/y", "", "X"])
def test_machine_names_are_never_used_as_file_paths(seeds: tuple[SeedApi, SeedApi], tmp_path: Path, odd: str) -> None:
    """Whatever a seed says."""
    seeds[0].put_machine(odd, "m1", ["10.0.7.2"], ["172.18.0.3"])
    find(tmp_path)
    assert {path.name for path in retained(tmp_path).glob("**/*.routes")} <= {f"{A}.routes", f"{B}.routes"}
    assert not [path for path in tmp_path.glob("**/*.routes") if retained(tmp_path) not in path.parents]


def test_seeds_have_names_of_their_own() -> None:
    """And so has whatever else stands for a cluster."""
    listed = [{"gardener": {}}, {"gardener": {"name": "other"}}, {"kind": "all"}]
    assert [finder.name for finder in parse_settings({"sources": listed}).finders] == ["seed", "other", ""]
    for claimed in ({"gardener": {"context": "c"}}, {"manifests": "c", "name": "seed"}):
        with pytest.raises(SettingsError) as caught:
            parse_settings({"sources": [{"gardener": {}}, claimed]})
        (reported,) = caught.value.sentences
        assert " both called seed; give one of them another `name`" in reported
