"""Applies annotations to the paths of Ingresses: regular expressions, and a redirect for `/`.

Not here: what becomes of requests for them (`rules`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from locallb.ingress.annotations.policy import Policy
from locallb.ingress.parsing import refused_path
from locallb.model.formatting import shown
from locallb.model.gateway.ingresses import Ingress, IngressBackend, IngressPath, IngressRule
from locallb.model.http.regexes import checked
from locallb.model.http.routes import Match, PathKind, PathMatch

_ROOT = PathMatch(PathKind.EXACT, "/")
_CANARY_ROUTES = 2
"""Routes that a path of a canary adds to one of another Ingress, by headers."""
_UNCOUNTED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]")
"""Escapes and sets, in which nothing is a choice or a group."""


def applied(ingress: Ingress, policy: Policy) -> Ingress:
    """Return an Ingress as its annotations want its paths."""
    if ingress.problem:
        return replace(ingress, rules=tuple(_unclear(rule, ingress.problem) for rule in ingress.rules))
    if policy.canary:
        requested = Match(headers=tuple(filter(None, (policy.canary.always, policy.canary.never))))
        rules = tuple(replace(rule, paths=tuple(map(_counted, rule.paths))) for rule in ingress.rules)
        return replace(ingress, rules=rules, routes_a_path=_CANARY_ROUTES * requested.entries)
    if not policy.expressions and not policy.app_root:
        return ingress
    return replace(ingress, rules=tuple(_rule(rule, ingress, policy) for rule in ingress.rules))


def _unclear(rule: IngressRule, problem: str) -> IngressRule:
    """Return the rule of an Ingress with unclear annotations: its paths may be expressions or not."""
    specific = (path for path in rule.paths if path.is_specific and not path.problem)
    more = (refused_path(replace(path, problem=problem), ignores_case=True) for path in specific)
    return replace(rule, paths=(*rule.paths, *more))


def _rule(rule: IngressRule, ingress: Ingress, policy: Policy) -> IngressRule:
    return rule if rule.problem else replace(rule, paths=tuple(_paths(rule, ingress, policy)))


def _paths(rule: IngressRule, ingress: Ingress, policy: Policy) -> Iterator[IngressPath]:
    if policy.app_root:
        yield IngressPath(_ROOT, IngressBackend(), "/", leads_to=policy.app_root)
        if rule.host and not rule.paths and ingress.default:  # all of the host is the default backend's
            yield IngressPath(PathMatch(PathKind.PREFIX, "/"), ingress.default, "/")
    for path in rule.paths:
        if not policy.app_root or path.match != _ROOT:
            yield _expression(path) if path.is_specific and policy.expressions else path


def _counted(path: IngressPath) -> IngressPath:
    """Return a path of a canary as that of the other Ingress may be, which its routes have as well."""
    read = _expression(path) if path.is_specific else path
    return path if read.problem else read


def _expression(path: IngressPath) -> IngressPath:
    """Read a path as an expression, which begins where the path does, ends anywhere, and heeds no capitals."""
    text = path.written or "/"
    why = f"path {shown(text)}: begin an expression with a slash, and put its choices in parentheses"
    try:
        is_plain = text.startswith("/") and not _chooses(checked(text))
        match = PathMatch(PathKind.REGEX, f"(?i:{text}).*")
    except ValueError as error:
        is_plain, why = False, str(error)
    if not is_plain:
        return refused_path(replace(path, problem=why), ignores_case=True)
    return replace(path, match=match, problem="", rank=None)


def _chooses(pattern: str) -> bool:
    """Return whether an expression has a choice outside of groups: the start would belong to its first part alone."""
    depth = 0
    for character in _UNCOUNTED.sub("", pattern):
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            return True
    return False
