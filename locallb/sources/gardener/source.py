"""The shoots of a seed, each followed as a source `kubernetes` of its own, and the seed before them.

A shoot's access is kept, for this user only, in a kubeconfig under a stable path: published data can be removed after
the shoot is gone. A seed that doesn't answer isn't one without shoots: the last found ones count. Not here: what a
seed's objects mean (`seed`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from locallb.kubernetes.api.servers import KubeError
from locallb.model.fields import LABEL
from locallb.model.identities import ClusterName, ContextName
from locallb.model.memory import Memo
from locallb.model.pacing import Pace
from locallb.model.routes import PodRoute
from locallb.model.texts import few
from locallb.sources import SourceError
from locallb.sources.consents import allowed
from locallb.sources.gardener.entry import GardenerFinder
from locallb.sources.gardener.seed import Seed, SeedContents
from locallb.sources.kept_access import SUFFIX, forgotten, listed, put, retained
from locallb.sources.kubernetes.entry import KubernetesSource, parsed, printed
from locallb.sources.source import PACE, FinderType, Found, Polls
from locallb.storage import files

_ROUTES = ".routes"


def is_selected(finder: GardenerFinder, shoot: str) -> bool:
    """Return whether a shoot is to be served."""
    return not finder.shoots or any(fnmatchcase(shoot, pattern) for pattern in finder.shoots)


def find_shoots(finder: GardenerFinder, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
    """Find the shoots, and how each is reached: in files in `directory`, which are only written to `keep` them.

    Raises:
        SourceError: if the seed doesn't answer and no shoot was ever found, or a kubeconfig can't be kept.

    """
    existing = retained(directory)
    try:
        seed = Seed(allowed(finder, root))
        inspect = seed.inspect(lambda name: is_selected(finder, name) or name in existing)
    except KubeError as error:
        return _as_last_found(finder, existing, directory, error)
    if elsewhere := _elsewhere(inspect.identity, directory, existing):
        routes = _routes_retained(directory)
        return Found(_sources(finder, existing, directory, None), complaints=(elsewhere,), node_routes=routes)
    removed = sorted(existing.keys() - inspect.present)
    _keep(inspect, directory, existing, removed, keep=keep)
    existing |= {name: directory / f"{name}{SUFFIX}" for name, access in inspect.accesses.items() if access.text}
    return Found(
        _sources(
            finder, {name: path for name, path in existing.items() if name in inspect.present}, directory, inspect
        ),
        notices=(
            *_missing(finder, inspect.present),
            *_unreached(finder, existing, inspect),
            *_without_routes(finder, inspect),
        ),
        node_routes=_routes_retained(directory) if inspect.machines is None else _by_shoot(inspect.machines),
        removed=tuple(map(ClusterName, removed)),
    )


def _keep(
    inspect: SeedContents, directory: Path, existing: Mapping[str, Path], removed: Collection[str], *, keep: bool
) -> None:
    """Write the kubeconfigs and routes of shoots, and empty the files of removed shoots. Raises SourceError."""
    write = partial(put, "gardener", keep=keep)
    usable = {name: access.text for name, access in inspect.accesses.items() if access.text}
    for name, text in usable.items():
        write(directory / f"{name}{SUFFIX}", text)
    if keep:
        for name in removed:
            write(existing[name], forgotten())
            write(_routes_file(directory, name), "")
        for name, routes in _changed_routes(directory, inspect).items():
            write(_routes_file(directory, name), printed(routes))
        if usable:
            write(_seed(directory), inspect.identity)


def _node_routes(name: str, directory: Path, inspect: SeedContents | None) -> tuple[PodRoute, ...]:
    """Return the routes to a shoot's Nodes as the seed reports them; the stored ones if it doesn't."""
    if inspect is not None and inspect.machines is not None:
        return inspect.machines.get(name, ())
    return parsed(files.read(_routes_file(directory, name)) or "")


def _changed_routes(directory: Path, inspect: SeedContents) -> Mapping[ClusterName, tuple[PodRoute, ...]]:
    """Return the routes to store: none for removed Nodes. Includes shoots with control planes elsewhere."""
    if inspect.machines is None:
        return {}
    return dict.fromkeys(_route_files(directory), ()) | _by_shoot(inspect.machines)


def _routes_retained(directory: Path) -> dict[ClusterName, tuple[PodRoute, ...]]:
    """Return the stored routes, by shoot."""
    return {name: parsed(files.read(path) or "") for name, path in _route_files(directory).items()}


def _route_files(directory: Path) -> dict[ClusterName, Path]:
    """Return the files of kept ways, by shoot."""
    return {ClusterName(path.name.removesuffix(_ROUTES)): path for path in listed(directory, _ROUTES)}


def _by_shoot(machines: Mapping[str, tuple[PodRoute, ...]]) -> dict[ClusterName, tuple[PodRoute, ...]]:
    """Return the routes of shoots with a valid cluster name."""
    return {ClusterName(name): routes for name, routes in machines.items() if LABEL.fullmatch(name)}


def _sources(
    finder: GardenerFinder, existing: Mapping[str, Path], directory: Path, inspect: SeedContents | None
) -> tuple[KubernetesSource, ...]:
    """Return the seed, with the gateways for the shoots, and the shoots."""
    intended = {name: path for name, path in sorted(existing.items()) if is_selected(finder, name)}
    shoots = inspect.shoots if inspect else {}
    return (
        KubernetesSource(
            finder.cluster,
            finder.kubeconfig,
            finder.context,
            found=True,
            node_routes=(),
            classes=finder.classes,
            consents=finder.consents,
        ),
        *(
            KubernetesSource(
                ClusterName(name),
                str(path),
                ContextName(name),
                found=True,
                silent=shoots[name].silent if name in shoots else "",
                node_routes=_node_routes(name, directory, inspect),
                classes=finder.classes,
            )
            for name, path in intended.items()
        ),
    )


def _as_last_found(
    finder: GardenerFinder, existing: Mapping[str, Path], directory: Path, why: KubeError
) -> Found[KubernetesSource]:
    sentence = f"source gardener: which shoots there are can't be found out: {why}"
    if not existing and files.read(_seed(directory)) is None:
        raise SourceError(f"{sentence}; repair that, or take `gardener` out of local-lb:sources")
    sources = _sources(finder, existing, directory, None)
    names = few([str(source.cluster) for source in sources[1:]]) or "none"
    complaint = f"{sentence}; so those count that were found last: {names}"
    return Found(sources, complaints=(complaint,), node_routes=_routes_retained(directory))


def _routes_file(directory: Path, name: str) -> Path:
    """Return where the ways to a shoot's Nodes are kept, for when the seed doesn't answer."""
    return directory / f"{name}{_ROUTES}"


def _seed(directory: Path) -> Path:
    """Return where it is kept which seed the shoots were found on."""
    return directory / "seed"


def _elsewhere(identity: str, directory: Path, existing: Collection[str]) -> str:
    """Explain that another seed had the shoots, and this one may use the same names; empty if it is the same seed."""
    before = files.read(_seed(directory)) if existing else None
    if before in {None, identity}:
        return ""
    return (
        f"source gardener: {few(sorted(existing))} ran on another seed than the one that the kubeconfig leads to "
        f"now, so"
        " those count as last found; correct its `kubeconfig` or `context`,"
        f" or remove {_seed(directory)} if they are gone"
    )


def _missing(finder: GardenerFinder, present: Collection[str]) -> tuple[str, ...]:
    return tuple(
        f"the seed {finder.cluster} has no shoot {name}; make it, or take it out of local-lb:sources"
        for name in sorted(finder.shoots)
        if "*" not in name and name not in present
    )


def _without_routes(finder: GardenerFinder, inspect: SeedContents) -> tuple[str, ...]:
    if inspect.machines is not None or not inspect.shoots:
        return ()
    why = "doesn't let us list pods, so the ways to its shoots' Nodes are unknown; allow its user to list pods"
    return (f"the seed {finder.cluster} {why}",)


def _unreached(finder: GardenerFinder, existing: Collection[str], inspect: SeedContents) -> tuple[str, ...]:
    """Report shoots that aren't up yet, and kubeconfigs with entries that local-lb refuses."""
    intended = {name: inspect.accesses[name] for name in sorted(inspect.accesses) if is_selected(finder, name)}
    young = (
        f"the shoot {name} isn't up yet" for name, way in intended.items() if name not in existing and not way.refused
    )
    refused = (
        f"the kubeconfig of the shoot {name} has {few(way.refused)}; local-lb takes certificates and a token from there"
        f" and nothing else, {'that is passed over' if name in existing else 'so the shoot is not read'}"
        for name, way in intended.items()
        if way.refused
    )
    return (*young, *refused)


class Gardener(FinderType[GardenerFinder]):
    """The seed is asked, again and again while it is watched."""

    def find(self, finder: GardenerFinder, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
        """Find the seed and its shoots."""
        return find_shoots(finder, root, directory, keep=keep)

    def watch(self, finder: GardenerFinder, root: Path, changed: Callable[[str], None], pace: Pace = PACE) -> Polls:
        """Poll every few seconds whether seed, shoots or credentials changed, and at first.

        What would be watched are objects of a whole Shoot each, of which two fields count, and Secrets, one by one.
        """
        api = Memo[Seed]()

        def inspect() -> SeedContents:
            seed = api.of(None, Seed, allowed(finder, root))
            return seed.inspect(partial(is_selected, finder))

        return Polls(finder.cluster, f"{finder.cluster} shoots", inspect, changed, pace)


SOURCE = Gardener()
