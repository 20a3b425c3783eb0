"""`--target`: an update of some load balancers only, named as the table names them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain

from locallb.cli.failures import Refused
from locallb.cli.session import Session
from locallb.engine.core.declared import EVERYTHING, Scope, only
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import name_of, root_urn
from locallb.model.desired import BALANCER, GATEWAY_OBJECT, GATEWAY_STATUS, PROXY
from locallb.model.texts import few
from locallb.planning.planned import Plan
from locallb.sources.snapshot import ReadingAndPlan

_SERVING = (BALANCER, PROXY)
MAX_NAMES = 5
BALANCERS = "load balancer"
"""What is named, unless another thing is."""


class TargetError(Refused):
    """There is no such load balancer: one sentence."""


def scope_of(session: Session, targets: Sequence[str], *, keep: bool) -> tuple[Scope, ReadingAndPlan | None]:
    """Make the scope of the named load balancers, with the ListenerSets that wait for their proof.

    Names may be of planned ones and of ones that only the state still has.

    Return it with its plan, if any is named; `keep` as in `Workspace.read_and_plan`.

    Raises TargetError if a name matches none or several.
    """
    if not targets:
        return EVERYTHING, None
    planned = session.plan(keep=keep)
    plan, resources = planned[1], session.resources()
    in_state = {resource.name for resource in resources if resource.type in _SERVING}
    names = sorted({str(placement.key) for placement in plan.placements} | in_state)
    named = {*selected(targets, names)}
    listener_sets = _waiting(named, plan, resources)
    chosen = named | {str(gateway) for waiting, gateway in plan.awaited if str(waiting) in listener_sets}
    proxies = {placement.proxy for placement in plan.placements if str(placement.key) in chosen}
    home = session.home
    roots = [
        *((kind, name) for name in chosen | proxies for kind in _SERVING),
        *((GATEWAY_OBJECT, name) for name in listener_sets),
    ]
    return only(root_urn(home.project, home.stack, kind, name) for kind, name in roots), planned


def _waiting(chosen: Collection[str], plan: Plan, resources: Iterable[ResourceState]) -> set[str]:
    """Return the ListenerSets that wait for the proof of these Gateways, by the plan or by the state."""
    users = (resource for resource in resources if resource.type == GATEWAY_STATUS)
    before = {user.name for user in users if not {*map(name_of, user.dependencies)}.isdisjoint(chosen)}
    return before.union(str(waiting) for waiting, gateway in plan.awaited if str(gateway) in chosen)


_GLOB = frozenset("*?[")


def is_glob(target: str) -> bool:
    return not _GLOB.isdisjoint(target)


def selected(targets: Iterable[str], names: Iterable[str], what: str = BALANCERS) -> tuple[str, ...]:
    """Return the names that are meant, each once: of a glob all that it matches. Raises TargetError."""
    names = list(names)
    return tuple(dict.fromkeys(chain.from_iterable(_selected(target, names, what) for target in targets)))


def settled(targets: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return what is meant from now on: whole names, and globs, which names may match later. Raises TargetError."""
    names = list(names)
    return tuple(
        target if is_glob(target) and _selected(target, names, BALANCERS) else matching(target, names)
        for target in targets
    )


def is_chosen(name: str, settled: Collection[str]) -> bool:
    """Return whether a name is among settled ones; any is if there are none."""
    return not settled or name in settled or any(is_glob(target) and is_named(name, target) for target in settled)


def _selected(target: str, names: Sequence[str], what: str) -> Sequence[str]:
    if not is_glob(target):
        return [matching(target, names, what)]
    if matches := present(target, names):
        return matches
    raise _failure(target, (), names, what)


def is_named(name: str, target: str) -> bool:
    """Return whether a glob matches a name, or its end after a slash; whether it begins so, without one."""
    fits = fnmatchcase if is_glob(target) else str.startswith
    return any(fits(form, target) for form in _forms(name))


def _forms(name: str) -> Iterator[str]:
    """Return the name, and its ends after a slash; IngressClasses have no namespace, and need none."""
    parts = name.replace("//", "/").split("/")
    return ("/".join(parts[number:]) for number in range(len(parts)))


def matching(target: str, names: Iterable[str], what: str = BALANCERS) -> str:
    """Find the one name that is `target`, or that ends with it after a slash, or that begins so. Raises TargetError."""
    names = list(names)
    if matches := choose(target, names):
        return matches[0]
    matches = tuple(name for name in names if target and is_named(name, target))
    if len(matches) == 1:
        return matches[0]
    raise _failure(target, matches, matches or names, what)


def present(target: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return what is meant of what there may be: all that a glob matches, otherwise what `choose` gives."""
    return tuple(name for name in names if is_named(name, target)) if is_glob(target) else choose(target, names)


def choose(target: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the one name that is `target` or its end after a slash, or none. Raises TargetError for several."""
    matches = tuple(name for name in names if target in {name, *_forms(name)})
    if len(matches) > 1:
        raise _failure(target, matches, matches, BALANCERS)
    return matches


def _failure(target: str, matches: Sequence[str], existing: Sequence[str], what: str) -> TargetError:
    why = f"{target!r} may be several" if matches else f"there is no {what} {target!r}"
    form = " as <cluster>/<namespace>/<name>" if what == BALANCERS else ""
    return TargetError(f"{why}; name one{form}: {few(existing, MAX_NAMES) or 'none'}")
