"""The sources where no configuration has any: as the options name them, otherwise as found on this host."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from locallb.cli.confirmation import Cluster
from locallb.cli.failures import Refused
from locallb.cli.projects.layout import Sources
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, ContextName
from locallb.sources.manifests.entry import cluster_name

_UNCLEAR = """\
there is nothing to serve that could be found
kind: {docker}
kubeconfig: {kubeconfig}
start a cluster and run again, or name what to serve by `--kind`, `--context NAME` or `--manifests DIR`"""


def named(options: Iterable[tuple[str, object]]) -> Sources:
    """Return the sources that options name, as a stack's configuration has them, wherever that lies."""
    return [_entry(kind, value) for kind, value in options]


def _entry(kind: str, value: object) -> dict[str, object]:
    if kind == "manifests":
        return {kind: str(Path(str(value)).resolve())}
    if kind == "kubernetes" and isinstance(value, dict):
        return _context(str(value["context"]))
    return {kind: value}


def _context(name: str, kubeconfig: str = "") -> dict[str, object]:
    cluster = {"name": cluster_name(name), "context": name}
    return {"kubernetes": {**cluster, "kubeconfig": kubeconfig} if kubeconfig else cluster}


def default_sources() -> Sources:
    """Return every cluster of kind, if there is one, otherwise the current context. Raises Refused without either."""
    docker = _why_no_kind()
    if not docker:
        return [{"kind": "all"}]
    from locallb.kubernetes.access.errors import KubeError  # noqa: PLC0415 - loads a client of Kubernetes
    from locallb.kubernetes.access.kubeconfig import meaning, resolve  # noqa: PLC0415 - likewise

    try:
        access = resolve("", ContextName(""), Path.home())
        meaning("", access.context, Path.home())
    except KubeError as error:
        raise Refused(_UNCLEAR.format(docker=docker, kubeconfig=error)) from None
    return [_context(access.context, access.kubeconfig)]


def clusters_of(sources: Sources) -> list[Cluster]:
    """Return the clusters that sources reach by a kubeconfig."""
    values = [value for source in sources for value in source.values() if isinstance(value, dict)]
    texts = ({key: str(value.get(key, "")) for key in ("name", "kubeconfig", "context")} for value in values)
    return [Cluster(ClusterName(each["name"]), each["kubeconfig"], ContextName(each["context"])) for each in texts]


def require_existing(sources: Sources, root: Path) -> None:
    """Refuse manifests and contexts that aren't there, by Refused or KubeError; clusters of kind may come later."""
    for kind, value in (entry for source in sources for entry in source.items()):
        if kind == "manifests" and not Path(str(value)).exists():
            raise Refused(f"there are no manifests in {value}, it doesn't exist; name another directory or a file")
        if kind == "kubernetes" and isinstance(value, dict):
            _require_context(str(value.get("kubeconfig", "")), ContextName(str(value["context"])), root)


def _require_context(kubeconfig: str, context: ContextName, root: Path) -> None:
    from locallb.kubernetes.access.errors import KubeconfigError  # noqa: PLC0415 - loads a client of Kubernetes
    from locallb.kubernetes.access.kubeconfig import resolve  # noqa: PLC0415 - likewise

    try:
        resolve(kubeconfig, context, root)
    except KubeconfigError as error:
        raise Refused(f"{error}; repair that file, or set KUBECONFIG to the one that is meant") from None


def _why_no_kind() -> str:
    """Return why no cluster of kind is found; empty if there is one."""
    from locallb.sources.kind.finding import names_of_clusters  # noqa: PLC0415 - loads a client of Docker

    try:
        return "" if names_of_clusters() else "this host's Docker has no cluster of it"
    except ClientError as error:
        return str(error)


def described(sources: Sources) -> str:
    """Return sources in words."""
    return ", ".join(_described(kind, value) for source in sources for kind, value in source.items())


def _described(kind: str, value: object) -> str:
    if kind == "kind":
        return f"{_clusters(value)} of kind on this host's Docker"
    if isinstance(value, dict):
        return f"the cluster of the context {value.get('context', 'that is current')}"
    return f"the manifests in {value}"


def _clusters(value: object) -> str:
    if value == "all":
        return "every cluster"
    names = value if isinstance(value, list) else [value]
    return f"the {'cluster' if len(names) == 1 else 'clusters'} {', '.join(map(str, names))}"
