"""The command `explain`: what of a stack would answer a request, by its plan; nothing is requested.

The plan is that of `up` on this host, or of manifests alone, as in reports: those here, in another directory or of a
revision. The exit code says whether something would serve the request.

Not here: the explanation itself (`planning.explanation`), and reading other sides (`commands.preview`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from locallb.cli.arguments import Arguments
from locallb.cli.commands.preview import open_project, other_side
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.cli.grammar import MANIFESTS
from locallb.cli.service_output import Parts, field_parts
from locallb.cli.session import Session
from locallb.engine.state.project import load_config
from locallb.model.http_requests import HttpRequest
from locallb.model.identities import Home
from locallb.planning.explanation import Answered, Candidate, Explanation, Share, explain
from locallb.planning.plan import make_plan
from locallb.report.wording import visible
from locallb.sources.configuration import stack_settings
from locallb.sources.snapshot import read_hostless
from locallb.storage.files import scratch

_MAX_BACKENDS = 3
"""Backends of a share that are listed."""


def explain_live(session: Session, args: Arguments, out: Out) -> int:
    """Explain by what the stack serves on this host, or would after `up`."""
    request = _request(args)
    reading, plan = session.plan(glance=True)
    return _report(explain(plan, request), reading.complaints, args, out)


def offline(args: Arguments, out: Out) -> int:
    """Explain by manifests alone. Raises Refused where the other side can't be used."""
    request, project = _request(args), open_project(args.directory.resolve())
    home = Home(project.name, args.stack, str(project.root))
    settings = stack_settings(load_config(project, args.stack))
    with scratch(f"what {args.side} has") as made:
        if args.side == MANIFESTS:
            reading = read_hostless(home, settings, project.root, made / "readings")
            plan, complaints = make_plan(reading.snapshot, settings), reading.complaints
        else:
            other = other_side(project, settings, home, args.side, made)
            if other.problem:
                raise Refused(other.problem)
            plan, complaints = other.plan, other.complaints
    return _report(explain(plan, request, hostless=True), complaints, args, out)


def _request(args: Arguments) -> HttpRequest:
    try:
        return HttpRequest.parse(args.url, args.method, args.headers)
    except ValueError as error:
        raise Refused(str(error)) from None


def _report(explanation: Explanation, complaints: Sequence[str], args: Arguments, out: Out) -> int:
    """Print an explanation and what couldn't be read, and give the exit code."""
    for complaint in complaints:
        out.error(visible(complaint))
    if args.json:
        out.raw(json.dumps(document(explanation), indent=2))
    else:
        for parts in lines(explanation):
            out.line(*((visible(text), style) for text, style in parts))
    if complaints:
        return Exit.FAILED
    return Exit.OK if explanation.serves else Exit.UNSERVED


def lines(explanation: Explanation) -> Iterator[Parts]:
    """Write an explanation: the answer first, then the way there, then the other rules."""
    yield ((str(explanation.request), "bold"),)
    yield _answer(explanation)
    if explanation.key:
        yield field_parts("address", f"{explanation.place} of {explanation.key.shown}: {explanation.found}")
    if explanation.others:
        yield field_parts("", f"also served by {', '.join(explanation.others)}, at addresses of their own")
    if explanation.tls:
        yield field_parts("tls", explanation.tls)
    if explanation.host:
        name = f"{explanation.listener}, " if explanation.listener else ""
        yield field_parts(
            "listener" if name else "host", f"{name}{'every host' if explanation.host == '*' else explanation.host}"
        )
    if explanation.origin:
        yield field_parts("rule", f"{explanation.origin}: {explanation.match}")
    elif explanation.match:
        yield field_parts("rule", explanation.match)
    if explanation.path and explanation.path != explanation.request.target.partition("?")[0]:
        yield field_parts("path", f"{explanation.path}, as it is compared")
    if explanation.sent:
        yield field_parts("asks for", explanation.sent)
    yield from _listed("backends", map(_share, explanation.shares))
    yield from _listed("also", explanation.filters)
    yield from _listed("earlier", map(_candidate, explanation.earlier))
    if (more := explanation.compared - len(explanation.earlier)) > 0:
        yield field_parts("", f"and {more} further from it")
    yield from _listed("later", map(_candidate, explanation.later))


def _answer(explanation: Explanation) -> Parts:
    texts = {
        Answered.BACKEND: "a backend answers",
        Answered.REDIRECT: f"a redirect, {explanation.status} to {explanation.location}",
        Answered.PROXY: f"the proxy answers {explanation.status}",
        Answered.CONNECTION: "the connection goes to a backend as it is",
        Answered.CLOSED: "the proxy closes the connection",
        Answered.NOTHING: "nothing answers",
    }
    reason = f": {explanation.reason}" if explanation.reason else ""
    return ("  ", ""), (f"{texts[explanation.answered]}{reason}", "green" if explanation.serves else "red")


def _share(share: Share) -> str:
    percent = f"{share.percent:.3g} %"
    if share.problem:
        answered = f"answered {share.status}: {share.problem}"
        return f"{percent}  {share.service}  {answered}" if share.service else f"{percent}  {answered}"
    more = len(share.backends) - _MAX_BACKENDS
    listed = ", ".join(share.backends[:_MAX_BACKENDS]) + (f" and {more} more" if more > 0 else "")
    return f"{percent}  {share.service}  {listed}".rstrip()


def _candidate(candidate: Candidate) -> str:
    named = f"{candidate.origin}: {candidate.match}" if candidate.origin else candidate.match
    return f"{named}: {candidate.why}"


def _listed(label: str, texts: Iterator[str] | Sequence[str]) -> Iterator[Parts]:
    for number, text in enumerate(texts):
        yield field_parts("" if number else label, text)


def document(explanation: Explanation) -> Mapping[str, object]:
    """Make the documented fields."""
    request = explanation.request
    return {
        "request": {
            "method": request.method,
            "url": request.url,
            "headers": [{"name": name, "value": value} for name, value in request.headers],
        },
        "serves": explanation.serves,
        "answered": str(explanation.answered),
        "status": explanation.status,
        "location": explanation.location,
        "reason": explanation.reason,
        "balancer": explanation.key._asdict() if explanation.key else None,
        "place": explanation.place,
        "found": explanation.found,
        "others": list(explanation.others),
        "tls": explanation.tls,
        "listener": explanation.listener,
        "host": explanation.host,
        "path": explanation.path,
        "rule": explanation.origin,
        "match": explanation.match,
        "sent": explanation.sent,
        "backends": [
            {
                "service": share.service,
                "percent": round(share.percent, 3),
                "addresses": list(share.backends),
                "status": share.status,
                "problem": share.problem,
            }
            for share in explanation.shares
        ],
        "filters": list(explanation.filters),
        "earlier": list(map(_fields, explanation.earlier)),
        "compared": explanation.compared,
        "later": list(map(_fields, explanation.later)),
    }


def _fields(candidate: Candidate) -> Mapping[str, str]:
    return {"rule": candidate.origin, "match": candidate.match, "why": candidate.why}
