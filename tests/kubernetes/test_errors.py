"""What an API's failures are: some may pass by themselves, others stay until somebody changes something."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.connected import FailedAnswerError, refused
from locallb.kubernetes.api.feed import Feed
from locallb.kubernetes.api.servers import (
    ConflictError,
    ForbiddenError,
    KubeError,
    PermanentKubeError,
    RefusedError,
    TransientKubeError,
    UnreachableError,
)
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from tests.support.servers import QuietHandler, QuietServer, in_thread

JSON = {"Content-Type": "application/json"}
PAGE = b"<html>\r\nsay\nthis</html>"


def kinds(of: type[KubeError]) -> Iterator[type[KubeError]]:
    """Return the types of failures that are no others' heading."""
    below = of.__subclasses__()
    yield from (kind for each in below for kind in kinds(each)) if below else (of,)


@pytest.mark.parametrize("kind", tuple(kinds(KubeError)), ids=lambda kind: kind.__name__)
def test_each_failure_either_may_pass_or_stays(kind: type[KubeError]) -> None:
    """Who gives something up asks for one type, not for a list of kinds that somebody has to go on with."""
    assert issubclass(kind, TransientKubeError) != issubclass(kind, PermanentKubeError)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, RefusedError),
        (403, ForbiddenError),
        (404, RefusedError),
        (408, UnreachableError),
        (409, ConflictError),
        (410, UnreachableError),
        (422, RefusedError),
        (429, UnreachableError),
        (500, UnreachableError),
        (503, UnreachableError),
    ],
)
def test_an_answer_says_whether_another_attempt_may_help(code: int, kind: type[KubeError]) -> None:
    """By its code; only a missing right is told with the remedy for that."""
    error = refused("https://127.0.0.1:6443", "Service a/web", code, "no", "bind a role")
    assert type(error) is kind
    assert ("bind a role" in str(error)) == (code in {401, 403})


@pytest.mark.parametrize("encoding", ["utf-8", "punycode", "idna", "zlib", "rot13", "undefined", "unicode_escape"])
def test_no_answer_names_the_encoding_in_which_it_is_read(encoding: str) -> None:
    """Some encodings take minutes for a page, others are none of texts."""
    headers = {"Content-Type": f"text/html; charset={encoding}"}
    error = FailedAnswerError(httpx2.Response(404, headers=headers, content=b"caf-dma \\u0041 \xff"))
    assert (error.code, error.message) == (404, "caf-dma \\u0041 \ufffd")


@contextmanager
def answering(code: int, headers: Mapping[str, str], body: bytes, directory: Path) -> Iterator[Access]:
    """Answer everything alike, and give the context of that."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_PATCH(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

    with in_thread(QuietServer(("127.0.0.1", 0), Handler)) as server:
        file = directory / "kubeconfig"
        file.write_text(
            f'{{clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{server.server_port}"}}}}],'
            " users: [{name: u, user: {}}], contexts: [{name: x, context: {cluster: c, user: u}}]}"
        )
        yield Access(str(file), ContextName("x"))


@pytest.mark.parametrize(
    "ask", [lambda access: Cluster(access).objects(), lambda access: Feed(access, "Service").list()]
)
def test_what_something_else_than_an_api_writes_is_one_line(ask: Callable[[Access], object], tmp_path: Path) -> None:
    """So that it can't be taken for a sentence of ours."""
    with (
        answering(404, {"Content-Type": "text/html"}, PAGE, tmp_path) as access,
        pytest.raises(KubeError, match="<html> say this</html>") as caught,
    ):
        ask(access)
    assert "\n" not in str(caught.value)


def test_a_refusal_with_a_word_in_the_place_of_its_code_is_understood() -> None:
    """As Rancher's gateway writes it: the answer's own code counts."""
    refusal = {"type": "error", "status": "401", "code": "Unauthorized", "message": "must authenticate"}
    error = FailedAnswerError(httpx2.Response(401, json=refusal))
    assert (error.code, error.message) == (401, "must authenticate")


@pytest.mark.parametrize(
    ("headers", "body", "why"),
    [
        (JSON, b"{}", "it has no metadata"),
        (JSON, b'{"metadata": {"name": ""}}', "an object has no name"),
        (JSON, b"<html>", "JSON is malformed: invalid character (byte 0)"),
        (JSON, b"[" * 100_000, "it is nested too deep"),
        (JSON, b'["Service"]', "a part of it is of another type"),
    ],
)
def test_an_answer_that_is_no_apis_is_told_in_words(
    headers: Mapping[str, str], body: bytes, why: str, tmp_path: Path
) -> None:
    """No name of an exception reaches whoever reads it."""
    with answering(200, headers, body, tmp_path) as access, pytest.raises(UnreachableError) as caught:
        Cluster(access).patch_status("n", "web", {"status": {}})
    assert str(caught.value).endswith(f"isn't a Kubernetes API's ({why})")
