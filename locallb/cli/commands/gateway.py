"""The command `gateway install-crds`: what of Gateway API's definitions a cluster lacks; with --yes it is installed.

Before anything is written the API server is asked whether it would take all of it. Nothing here removes any.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from locallb.cli.arguments import Arguments
from locallb.cli.confirmation import Cluster, require_named_or_local
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.gateway.crds import DEFINITION, CrdPlan, InstallStep, carried, names, plan
from locallb.kubernetes.api.discovery import Definitions
from locallb.kubernetes.api.kubeconfig import resolve
from locallb.model.fields import at, objects_of
from locallb.model.identities import ContextName

_TIMEOUT = 30.0
"""Seconds in which an API server has to serve what it took."""
_PAUSE = 0.1


def gateway(args: Arguments, out: Out) -> int:
    """Show what would be installed, or install it."""
    bundle = carried()
    access = resolve(args.kubeconfig, args.context, Path.cwd())
    require_named_or_local(Cluster(kubeconfig=args.kubeconfig, context=args.context), Path.cwd())
    cluster = Definitions(access)
    observed = {name: definition for name in names(bundle) if (definition := cluster.definition(*name))}
    made = plan(bundle, observed, args.channel)
    if made.refusal:
        raise Refused(made.refusal)
    remaining = [step for step in made.steps if not step.done]
    for step in remaining:
        cluster.apply(step.document, rehearsed=True)
    if args.json and not args.yes:
        out.raw(json.dumps(_document(made, access.context, applied=False), indent=2))
    elif not args.json:
        _report(made, access.context, out)
        if remaining and not args.yes:
            out.line("Nothing was changed. --yes does exactly this.")
    if args.yes:
        _install(cluster, made.steps)
        if args.json:
            out.raw(json.dumps(_document(made, access.context, applied=True), indent=2))
        elif remaining:
            out.line(f"Installed: {access.context} has Gateway API {made.version} ({made.channel}).")
    return Exit.OK


def _install(cluster: Definitions, steps: Sequence[InstallStep]) -> None:
    """Write what is missing, and wait until all of it is served: even existing CRDs may be a moment old."""
    for step in steps:
        if not step.done:
            cluster.apply(step.document, rehearsed=False)
    deadline = time.monotonic() + _TIMEOUT
    waited = [step.name for step in steps if step.name[0] == DEFINITION]
    while waited := [name for name in waited if not _is_served(cluster, *name)]:
        if time.monotonic() > deadline:
            raise Refused(f"{waited[0][1]} is installed, but the API doesn't serve it after {_TIMEOUT:.0f} s")
        time.sleep(_PAUSE)


def _is_served(cluster: Definitions, kind: str, name: str) -> bool:
    conditions = objects_of(at(cluster.definition(kind, name), "status", "conditions"))
    return any((condition.get("type"), condition.get("status")) == ("Established", "True") for condition in conditions)


def _report(made: CrdPlan, context: ContextName, out: Out) -> None:
    remaining = [step for step in made.steps if not step.done]
    if not remaining:
        out.line(f"{context} has Gateway API {made.version} ({made.channel}) already.")
        return
    out.line(f"Gateway API {made.version}, channel {made.channel}, into the cluster of the context {context}:")
    out.table(("KIND", "NAME", ""), [(*step.name, _fate(step)) for step in made.steps])


def _fate(step: InstallStep) -> str:
    if step.done:
        return "is there"
    return f"update from {step.had}" if step.had else "create"


def _document(made: CrdPlan, context: ContextName, *, applied: bool) -> dict[str, object]:
    return {
        "context": context,
        "version": made.version,
        "channel": made.channel,
        "applied": applied,
        "objects": list(_objects(made)),
    }


def _objects(made: CrdPlan) -> Iterator[dict[str, str]]:
    for step in made.steps:
        kind, name = step.name
        yield {"kind": kind, "name": name, "had": step.had, "has": step.has}
