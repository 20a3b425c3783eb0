"""Lists that no API gives, read by commands: a sentence, no traceback, and an end."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.servers import KubeError, UnreachableError
from locallb.model.snapshot import Access
from tests.support.fake_api import Api, api
from tests.support.kubeconfigs import written
from tests.support.odd_api import ODD_LISTS, odd_page
from tests.support.servers import QuietHandler, QuietServer, answer_json, in_thread

__all__ = ["api"]

LISTS_FOR_COMMANDS = ("nothing", "an object", "a list", "an item as a text", "null metadata", "no items", "too deep")


@pytest.mark.parametrize("name", LISTS_FOR_COMMANDS)
def test_an_odd_list_is_reported_to_commands_as_well(
    api: tuple[Api, Access], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` reads a cluster by another client: a sentence, no traceback, and never an empty cluster."""
    answers, access = api
    monkeypatch.setattr("locallb.kubernetes.api.client._PAUSES", ())
    answers.listed = (200, ODD_LISTS[name])
    with pytest.raises(KubeError, match="isn't a Kubernetes API's") as caught:
        Cluster(access).objects()
    assert isinstance(caught.value, UnreachableError)


@pytest.mark.parametrize("tokens", [["x"], ["x", "y"]])
def test_a_list_that_goes_round_in_circles_is_reported_to_commands_as_well(
    api: tuple[Api, Access], tokens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends once a page comes again, not when memory does; the next list begins at its beginning."""
    answers, access = api
    monkeypatch.setattr("locallb.kubernetes.api.client._PAUSES", ())
    pages = cycle(tokens)
    monkeypatch.setattr(
        Api, "listed", property(lambda _api: (200, odd_page(next(pages))), lambda _api, _value: None), raising=False
    )
    cluster = Cluster(access)
    for _ in range(2):
        before = len(answers.requested)
        with pytest.raises(KubeError, match="turns no page"):
            cluster.objects()
        assert len(answers.requested) == before + 1 + len(tokens)


def test_a_page_that_is_asked_for_with_another_credential_is_no_circle(tmp_path: Path) -> None:
    """A token ends while a long list is read: the very same request goes once more."""
    requested: list[tuple[str, str]] = []

    class Handler(QuietHandler):
        """Refuses the token that the first page was given for."""

        def do_GET(self) -> None:
            page = parse_qs(self.path.partition("?")[2]).get("continue", [""])[0]
            requested.append((page, self.headers["Authorization"].removeprefix("Bearer ")))
            if requested[-1] == ("x", "old"):
                (tmp_path / "token").write_text("new")
                answer_json(self, 401, b"{}")
            else:
                answer_json(self, 200, odd_page("" if page else "x"))

    (tmp_path / "token").write_text("old")
    with in_thread(QuietServer(("127.0.0.1", 0), Handler)) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        access = written(tmp_path / "config", cluster={"server": url}, user={"tokenFile": "token"})
        assert Cluster(access).slices() == []
    assert requested == [("", "old"), ("x", "old"), ("x", "new")]
