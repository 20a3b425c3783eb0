"""Access control of the live page: only this host's own browser and programs, for the page itself. Pure.

Any site that a user visits can make the browser send requests to the loopback. A name that leads here (DNS rebinding)
shows in Host, another origin in Origin or Sec-Fetch-Site; both are refused. Not here: the content for allowed clients.
"""

from __future__ import annotations

from http import HTTPStatus

from locallb.cli.watching.http.host_header import Host, host_of
from locallb.cli.watching.http.http_messages import Page, Request

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response: no content of other origins, no framing, no caching."""


def refusal(request: Request) -> Page | None:
    """Return why a request isn't answered; None where it is."""
    if request.method not in {"GET", "HEAD"}:
        sentence, allowed = b"the page is only read: there is GET, HEAD\n", {**HEADERS, "Allow": "GET, HEAD"}
        return Page(sentence, status=HTTPStatus.METHOD_NOT_ALLOWED, headers=allowed)
    host = host_of(request)
    if host is None or not _is_of_loopback(host):
        return _forbidden("the page is there under a loopback address or localhost only, not under another name")
    if any([f"http://{name}" for name in request.values("host")] != [origin] for origin in request.values("origin")):
        return _forbidden("the page is for itself only, not for pages of another origin")
    if any(site not in {"same-origin", "none"} for site in request.values("sec-fetch-site")):
        return _forbidden("another page asked for this one: type its address into the browser instead")
    return None


def _is_of_loopback(host: Host) -> bool:
    """Return whether it is this host's loopback; which port doesn't matter, it may be a forwarded one."""
    return host.address.is_loopback if host.address else host.name == "localhost"


def _forbidden(sentence: str) -> Page:
    return Page(f"{sentence}\n".encode(), status=HTTPStatus.FORBIDDEN, headers=HEADERS)
