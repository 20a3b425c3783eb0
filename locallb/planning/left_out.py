"""Notices about Services that are read and not served, and about sources with nothing to serve.

One sentence per reason, with counts and a few examples. Not here: Services that are ours and get
nothing (rejections), and files or objects that can't be parsed (notices of `parsing` and of the sources).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from locallb.config.settings import Settings
from locallb.model.formatting import clipped, counted, few
from locallb.model.objects import MalformedService, Service
from locallb.model.snapshot import Contents, Snapshot
from locallb.planning.addresses.pins import ANY
from locallb.planning.planned import Plan
from locallb.planning.selection import implements, is_ours, selects

EXAMPLES = 3
"""Limit of names in a sentence; for further ones it has their number."""
_GROUPS = 8
"""Sentences about Services that are left out, and kinds in a sentence."""
_Any = Service | MalformedService


def left_out(snapshot: Snapshot, plan: Plan, settings: Settings) -> tuple[str, ...]:
    """Return which LoadBalancer Services aren't this stack's, by reason; if it serves none, also what was read."""
    handled = len(plan.placements) + len(plan.rejections)
    nothing = () if handled else (_nothing_to_serve(snapshot.contents),)
    if len(snapshot.services) + len(snapshot.malformed) == handled:
        return nothing  # as nearly always, at no cost
    groups: dict[str, list[_Any]] = {}
    everything: list[_Any] = [*snapshot.services, *snapshot.malformed]
    for service in sorted(
        (service for service in everything if not is_ours(service, settings)), key=lambda service: service.key
    ):
        groups.setdefault(_why(service, settings), []).append(service)
    sentences = [
        f"{counted(len(services), 'Service')} left out: {why}: {_examples(services)}"
        for why, services in groups.items()
    ]
    more = len(sentences) - _GROUPS
    rest = [f"Services left out for {counted(more, 'more reason')}"] if more > 0 else []
    return (*nothing, *sentences[:_GROUPS], *rest)


def unused_pins(snapshot: Snapshot, settings: Settings) -> tuple[str, ...]:
    """Return which pins are of no use, because no source has the Service."""
    if not settings.pins:
        return ()
    keys = [*(service.key for service in snapshot.services), *(rejected.key for rejected in snapshot.malformed)]
    present = {f"{key.namespace}/{key.name}" for key in keys}
    return tuple(
        f"local-lb:pins has {clipped(pin)}, but no source has a Service of that name and of type LoadBalancer;"
        " correct the name or remove the pin"
        for pin in settings.pins
        if pin not in present and ANY not in pin
    )


def _nothing_to_serve(contents: Sequence[Contents]) -> str:
    """Return what was read where no Service is served."""
    if not contents:
        return "Nothing to serve."
    sources = [_content(content) for content in contents[:_GROUPS]]
    more = [f"{counted(len(contents) - _GROUPS, 'more source')}"] if len(contents) > _GROUPS else []
    return f"Nothing to serve. Read: {'; '.join([*sources, *more])}."


def _why(service: _Any, settings: Settings) -> str:
    """Return why a Service isn't ours."""
    if not implements(service, settings.classes):
        klass = (
            "no class"
            if service.load_balancer_class is None
            else f"class {clipped(service.load_balancer_class) or '``'}"
        )
        return f"{klass} (this stack serves {_classes(settings)})"
    if not selects(service, settings.namespaces, {}):
        return (
            f"namespace {clipped(service.key.namespace)} (local-lb:namespaces has {_few(sorted(settings.namespaces))})"
        )
    wanted = _few([f"{clipped(key)}={clipped(value)}" for key, value in sorted(settings.selector.items())])
    return f"other labels (local-lb:selector wants {wanted})"


def _classes(settings: Settings) -> str:
    names = [f"class {clipped(name) or '``'}" for name in sorted(settings.classes.names)]
    return (
        _few([*(["those without a class"] if settings.classes.default else []), *names]) or "none, see local-lb:classes"
    )


def _examples(services: Collection[_Any]) -> str:
    return _few(
        [f"{service.key.cluster}/{clipped(service.key.namespace)}/{clipped(service.key.name)}" for service in services]
    )


def _few(names: Collection[str]) -> str:
    return few(names, EXAMPLES)


def _content(contents: Contents) -> str:
    """Return what a source had: `demo has 2 files with 3 objects (2 Deployment, 1 Service of type ClusterIP)`."""
    if contents.files == 0:
        return f"{contents.cluster} has no manifest that could be read"
    total = sum(contents.kinds.values())
    files = f"{counted(contents.files, 'file')} with " if contents.files is not None else ""
    objects = counted(total, "object") if total else "no object"
    kinds = f" ({_kinds(contents.kinds)})" if total else ""
    return f"{contents.cluster} has {files}{objects}{kinds}"


def _kinds(kinds: Mapping[str, int]) -> str:
    ranked = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ranked[_GROUPS:])
    return ", ".join(f"{count} {kind}" for kind, count in [*ranked[:_GROUPS], *([(OTHERS, rest)] if rest else [])])


OTHERS = "others"


def few_kinds(kinds: Iterable[str]) -> Mapping[str, int]:
    """Count kinds, at a bounded size whatever they are called."""
    counts = Counter(kinds)
    common = counts.most_common(_GROUPS)
    rest = counts.total() - sum(count for _, count in common)
    return dict(common) | ({OTHERS: rest} if rest else {})


def added(several: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Add counts up."""
    total: dict[str, int] = {}
    for counter in several:
        for kind, count in counter.items():
            total[kind] = total.get(kind, 0) + count
    return total
