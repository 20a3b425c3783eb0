"""The shoots of a seed, each followed as a source `kubernetes` of its own, and the seed before them.

A shoot's access is kept, for this user only, in a kubeconfig under a stable path: published data can be removed after
the shoot is gone. A seed that doesn't answer isn't one without shoots: the last found ones count. Not here: what a
seed's objects mean (`shoots`), and when it is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from locallb.kubernetes.access.errors import KubeError
from locallb.model.fields import LABEL
from locallb.model.formatting import few
from locallb.model.identities import ClusterName, ContextName
from locallb.model.network.routes import PodRoute
from locallb.sources import SourceError
from locallb.sources.consents import allowed
from locallb.sources.gardener.entry import GardenerSource
from locallb.sources.gardener.seed import Seed, SeedContents
from locallb.sources.kept_access import SUFFIX, forgotten, kept, listed, put
from locallb.sources.kubernetes.entry import KubernetesSource
from locallb.sources.kubernetes.machine_pods import parsed, printed
from locallb.sources.source import Found
from locallb.storage import files

_ROUTES = ".routes"


def is_meant(finder: GardenerSource, shoot: str) -> bool:
    """Return whether a shoot is to be served."""
    return not finder.shoots or any(fnmatchcase(shoot, pattern) for pattern in finder.shoots)


def find_shoots(finder: GardenerSource, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
    """Find the shoots, and how each is reached: in files in `directory`, which are only written to `keep` them.

    Raises:
        SourceError: if the seed doesn't answer and no shoot was ever found, or a kubeconfig can't be kept.

    """
    known = kept(directory)
    try:
        seed = Seed(allowed(finder, root))
        look = seed.look(lambda name: is_meant(finder, name) or name in known)
    except KubeError as error:
        return _as_last_found(finder, known, directory, error)
    if elsewhere := _elsewhere(look.identity, directory, known):
        routes = _kept_routes(directory)
        return Found(_sources(finder, known, directory, None), complaints=(elsewhere,), node_routes=routes)
    gone = sorted(known.keys() - look.present)
    _keep(look, directory, known, gone, keep=keep)
    known |= {name: directory / f"{name}{SUFFIX}" for name, way in look.ways.items() if way.text}
    return Found(
        _sources(finder, {name: path for name, path in known.items() if name in look.present}, directory, look),
        notices=(*_missing(finder, look.present), *_unreached(finder, known, look), *_without_routes(finder, look)),
        node_routes=_kept_routes(directory) if look.machines is None else _by_shoot(look.machines),
        gone=tuple(map(ClusterName, gone)),
    )


def _keep(look: SeedContents, directory: Path, known: Mapping[str, Path], gone: Collection[str], *, keep: bool) -> None:
    """Write the kubeconfigs and routes of shoots, and empty the files of removed shoots. Raises SourceError."""
    write = partial(put, "gardener", keep=keep)
    usable = {name: way.text for name, way in look.ways.items() if way.text}
    for name, text in usable.items():
        write(directory / f"{name}{SUFFIX}", text)
    if keep:
        for name in gone:
            write(known[name], forgotten())
            write(_ways_file(directory, name), "")
        for name, ways in _changed_routes(directory, look).items():
            write(_ways_file(directory, name), printed(ways))
        if usable:
            write(_seed(directory), look.identity)


def _node_routes(name: str, directory: Path, look: SeedContents | None) -> tuple[PodRoute, ...]:
    """Return the routes to a shoot's Nodes as the seed reports them; the stored ones if it doesn't."""
    if look is not None and look.machines is not None:
        return look.machines.get(name, ())
    return parsed(files.read(_ways_file(directory, name)) or "")


def _changed_routes(directory: Path, look: SeedContents) -> Mapping[ClusterName, tuple[PodRoute, ...]]:
    """Return the routes to store: none for removed Nodes. Includes shoots with control planes elsewhere."""
    if look.machines is None:
        return {}
    return dict.fromkeys(_route_files(directory), ()) | _by_shoot(look.machines)


def _kept_routes(directory: Path) -> dict[ClusterName, tuple[PodRoute, ...]]:
    """Return the stored routes, by shoot."""
    return {name: parsed(files.read(path) or "") for name, path in _route_files(directory).items()}


def _route_files(directory: Path) -> dict[ClusterName, Path]:
    """Return the files of kept ways, by shoot."""
    return {ClusterName(path.name.removesuffix(_ROUTES)): path for path in listed(directory, _ROUTES)}


def _by_shoot(machines: Mapping[str, tuple[PodRoute, ...]]) -> dict[ClusterName, tuple[PodRoute, ...]]:
    """Return the routes of shoots with a valid cluster name."""
    return {ClusterName(name): ways for name, ways in machines.items() if LABEL.fullmatch(name)}


def _sources(
    finder: GardenerSource, known: Mapping[str, Path], directory: Path, look: SeedContents | None
) -> tuple[KubernetesSource, ...]:
    """Return the seed, with the gateways for the shoots, and the shoots."""
    meant = {name: path for name, path in sorted(known.items()) if is_meant(finder, name)}
    shoots = look.shoots if look else {}
    return (
        KubernetesSource(
            finder.cluster,
            finder.kubeconfig,
            finder.context,
            found=True,
            node_routes=(),
            consents=finder.consents,
        ),
        *(
            KubernetesSource(
                ClusterName(name),
                str(path),
                ContextName(name),
                found=True,
                silent=shoots[name].silent if name in shoots else "",
                node_routes=_node_routes(name, directory, look),
            )
            for name, path in meant.items()
        ),
    )


def _as_last_found(
    finder: GardenerSource, known: Mapping[str, Path], directory: Path, why: KubeError
) -> Found[KubernetesSource]:
    sentence = f"source gardener: which shoots there are can't be found out: {why}"
    if not known and files.read(_seed(directory)) is None:
        raise SourceError(f"{sentence}; repair that, or take `gardener` out of local-lb:sources")
    sources = _sources(finder, known, directory, None)
    names = few([str(source.cluster) for source in sources[1:]]) or "none"
    complaint = f"{sentence}; so those count that were found last: {names}"
    return Found(sources, complaints=(complaint,), node_routes=_kept_routes(directory))


def _ways_file(directory: Path, name: str) -> Path:
    """Return where the ways to a shoot's Nodes are kept, for when the seed doesn't answer."""
    return directory / f"{name}{_ROUTES}"


def _seed(directory: Path) -> Path:
    """Return where it is kept which seed the shoots were found on."""
    return directory / "seed"


def _elsewhere(identity: str, directory: Path, known: Collection[str]) -> str:
    """Explain that another seed had the shoots, and this one may use the same names; empty if it is the same seed."""
    before = files.read(_seed(directory)) if known else None
    if before in {None, identity}:
        return ""
    return (
        f"source gardener: {few(sorted(known))} ran on another seed than the one that the kubeconfig leads to now, so"
        " those count as last found; correct its `kubeconfig` or `context`,"
        f" or remove {_seed(directory)} if they are gone"
    )


def _missing(finder: GardenerSource, present: Collection[str]) -> tuple[str, ...]:
    return tuple(
        f"the seed {finder.cluster} has no shoot {name}; make it, or take it out of local-lb:sources"
        for name in sorted(finder.shoots)
        if "*" not in name and name not in present
    )


def _without_routes(finder: GardenerSource, look: SeedContents) -> tuple[str, ...]:
    if look.machines is not None or not look.shoots:
        return ()
    why = "doesn't let us list pods, so the ways to its shoots' Nodes are unknown; allow its user to list pods"
    return (f"the seed {finder.cluster} {why}",)


def _unreached(finder: GardenerSource, known: Collection[str], look: SeedContents) -> tuple[str, ...]:
    """Report shoots that aren't up yet, and kubeconfigs with entries that local-lb refuses."""
    meant = {name: look.ways[name] for name in sorted(look.ways) if is_meant(finder, name)}
    young = (f"the shoot {name} isn't up yet" for name, way in meant.items() if name not in known and not way.refused)
    refused = (
        f"the kubeconfig of the shoot {name} has {few(way.refused)}; local-lb takes certificates and a token from there"
        f" and nothing else, {'that is passed over' if name in known else 'so the shoot is not read'}"
        for name, way in meant.items()
        if way.refused
    )
    return (*young, *refused)
