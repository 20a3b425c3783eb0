"""Questions to the user: before an update, and before a cluster that isn't of this host is used for the first time."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from locallb.cli.console import Out
from locallb.cli.failures import Refused
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, ContextName
from locallb.model.texts import clipped, counted

if TYPE_CHECKING:
    from locallb.kubernetes.api.kubeconfig import Meaning
    from locallb.sources.consents import ClusterEntry


class Cluster(Struct, frozen=True):
    """A cluster that an option names, or that the current context means; as an entry of the configuration."""

    cluster: ClusterName = ClusterName("")
    kubeconfig: str = ""
    context: ContextName = ContextName("")
    consents: str = ""


def confirmed(question: str, out: Out) -> bool:
    """Ask on a terminal; anything but yes is no."""
    if not sys.stdin.isatty():
        raise Refused("there is no terminal to ask on; say --yes to go on without being asked")
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        out.line("")
        answer = ""
    if answer.strip().lower() in {"y", "yes"}:
        return True
    out.line("Nothing was changed.")
    return False


def confirm_new(entry: ClusterEntry, root: Path, command: str, out: Out, *, requires: bool) -> None:
    """Confirm that a new stack serves a cluster, unless that is of this host. Raises Refused, KubeError."""
    from locallb.kubernetes.api.kubeconfig import meaning  # noqa: PLC0415 - loads what reads YAML

    if is_of_host(entry, root):
        return
    intended = meaning(entry.kubeconfig, entry.context, root)
    if requires and sys.stdin.isatty():
        _ask(entry, root, out)
        return
    named = f"--context {shlex.quote(str(intended.access.context))}"
    raise Refused(
        f"{_described(intended)}, so it isn't served unasked, and nothing was sent there:"
        f" `locallb {command} {named} --yes` serves it, `locallb preview {named}` shows what that would do"
    )


def require_named_or_local(entry: ClusterEntry, root: Path) -> None:
    """Refuse a cluster that isn't of this host and that only a current context names. Raises Refused, KubeError."""
    from locallb.kubernetes.api.kubeconfig import meaning  # noqa: PLC0415 - as above
    from locallb.sources.consents import is_named  # noqa: PLC0415 - likewise

    intended = meaning(entry.kubeconfig, entry.context, root)
    if not (is_named(entry, intended, root) or is_of_host(entry, root)):
        named = shlex.quote(str(intended.access.context))
        raise Refused(
            f"{_described(intended)}, and nothing was sent there: name it by `--context {named}` if it is meant"
        )


def is_of_host(entry: ClusterEntry, root: Path) -> bool:
    """Return whether a cluster is of this host, or this pod's own. Raises KubeError."""
    from locallb.kubernetes.api.kubeconfig import meaning  # noqa: PLC0415 - as above
    from locallb.sources.consents import is_local, is_of_pod  # noqa: PLC0415 - likewise

    intended = meaning(entry.kubeconfig, entry.context, root)
    return is_of_pod(intended.access) or is_local(intended.server)


def confirm_current(entries: Sequence[ClusterEntry], root: Path, out: Out, *, requires: bool, alone: bool) -> None:
    """Confirm each cluster that a stack selects by a current context and that isn't of this host.

    Without a terminal it is refused if these are the stack's only sources (`alone`); with other sources, reading it
    reports it. Raises Refused.
    """
    from locallb.kubernetes.api.servers import KubeError, UnconfirmedError  # noqa: PLC0415 - as above
    from locallb.sources.consents import allowed, remember  # noqa: PLC0415 - as above

    refused = []
    for entry in entries:
        try:
            allowed(entry, root)
        except UnconfirmedError as error:
            refused.append((entry, error))
        except KubeError:
            continue  # reading it reports that
    if requires and sys.stdin.isatty():
        for entry, _ in refused:
            remember(Path(entry.consents), entry.cluster, _ask(entry, root, out))
    elif alone and refused and len(refused) == len(entries):
        raise Refused("\n".join(f"source {entry.cluster}: {error}" for entry, error in refused))


def _ask(entry: ClusterEntry, root: Path, out: Out) -> Meaning:
    """Ask about one cluster, with all that is known of it; return which it is. Raises Refused if the answer is no."""
    from locallb.kubernetes.api.kubeconfig import meaning  # noqa: PLC0415 - as above

    intended = meaning(entry.kubeconfig, entry.context, root)
    out.line(f"{_described(intended)}.")
    for line in _touched(intended):
        out.line(line)
    if not confirmed("Serve the Services of this cluster?", out):
        raise Refused(f"the cluster of the context {clipped(intended.access.context)} isn't served")
    if meaning(entry.kubeconfig, entry.context, root) != intended:
        raise Refused(f"{intended.access.kubeconfig} was changed meanwhile; run this again")
    return intended


def _touched(intended: Meaning) -> Iterator[str]:
    """Return how many Services a yes is about."""
    from locallb.kubernetes.api.client import Cluster as Api  # noqa: PLC0415 - as above
    from locallb.kubernetes.object_parsing import parse_objects  # noqa: PLC0415 - as above

    try:
        found = parse_objects(ClusterName("c"), Api(intended.access).objects()).services
    except ClientError as error:
        yield f"Its Services can't be counted: {error}."
        return
    others = [service for service in found if service.ingress or service.hostnames]
    yield (
        f"It has {counted(len(found), 'Service')} of type LoadBalancer. {len(others)} of them have an address in their"
        f" status, which stay as they are unless it is local-lb's; {len(found) - len(others)} would get one of this"
        " host, with a finalizer, a condition and events."
    )


def _described(intended: Meaning) -> str:
    url = clipped(intended.server.url) or "no server"
    access = intended.access
    return f"The context {clipped(access.context)} of {access.kubeconfig} leads to {url}, not to this host"
