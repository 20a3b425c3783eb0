"""Streams of the small HTTP server: who follows gets what is new, and whoever doesn't take it goes."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address

import pytest

from locallb.cli.watching import http_server
from locallb.cli.watching.http_server import AT_ONCE, STREAMS, HttpServer, Page
from tests.support.waiting import TIMEOUT, becomes

FOLLOW = b"GET /events HTTP/1.0\r\n\r\n"


class News:
    """What there is to tell, to anybody who follows."""

    def __init__(self) -> None:
        self.reported = b""
        self.open = 0
        self.reads = 0
        self.before: Callable[[int], None] = lambda _number: None
        """Called before a follower reads, with its number."""

    def follow(self) -> Follower:
        self.open += 1
        return Follower(self, self.open)


class Follower:
    """One who follows."""

    def __init__(self, news: News, number: int) -> None:
        self._news = news
        self._number = number
        self._existing = b""

    def read(self) -> bytes:
        self._news.before(self._number)
        self._news.reads += 1
        new, self._existing = self._news.reported if self._news.reported != self._existing else b"", self._news.reported
        return new

    def close(self) -> None:
        self._news.open -= 1


@contextmanager
def served(news: News) -> Iterator[tuple[HttpServer, tuple[str, int]]]:
    pages = {
        "/events": lambda _request: Page(b"", "text/event-stream", opens=news.follow),
        "/page": lambda _request: Page(b"here"),
    }
    server = HttpServer(ip_address("127.0.0.1"), 0, pages)
    server.start()
    try:
        yield server, ("127.0.0.1", int(server.place.rpartition(":")[2]))
    finally:
        server.stop()


def following(place: tuple[str, int], request: bytes = FOLLOW) -> socket.socket:
    """Ask, and give the connection after the head of the answer."""
    client = socket.create_connection(place, timeout=TIMEOUT)
    client.sendall(request)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = client.recv(1)
        assert part, head
        head += part
    assert head.startswith(b"HTTP/1.0 200"), head
    return client


def heard(client: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (part := client.recv(size - len(got))):
        got += part
    return got


def test_stream_clients_get_news_while_pages_are_served() -> None:
    """Every client gets every message; a closed connection ends its stream."""
    news = News()
    with served(news) as (server, place), following(place) as client, following(place) as other:
        for terms in (b"one", b"two", b"x" * 5_000_000):
            news.reported = terms
            server.wake()
            assert heard(client, len(terms)) == heard(other, len(terms)) == terms
        with following(place, b"GET /page HTTP/1.0\r\n\r\n") as page:
            assert page.recv(10) == b"here"
        other.close()
        becomes(lambda: news.open == 1)
    assert news.open == 0


def test_last_news_are_sent_before_a_stream_ends() -> None:
    """So readers know that it was meant to end."""
    news = News()
    with ExitStack() as stack:
        with served(news) as (_, place):
            client = stack.enter_context(following(place))
            becomes(lambda: news.reads)
            news.reported = b"farewell"
        assert heard(client, 100) == b"farewell"


def test_stalled_stream_reader_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are told meanwhile, however long they take; no more than one message is made for it."""
    news = News()
    news.before = lambda number: monkeypatch.setattr(http_server, "TIMEOUT", 0.5 if number == 1 else TIMEOUT)
    with served(news) as (server, place), following(place), following(place) as quick:
        large = b"x" * (32 << 20)
        news.reported = large
        server.wake()
        assert heard(quick, len(large)) == large
        becomes(lambda: news.open == 1)
        news.reported = b"more"
        server.wake()
        assert heard(quick, 4) == b"more"


def test_a_reader_that_drips_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message has one deadline, however busily it is taken."""
    monkeypatch.setattr(http_server, "TIMEOUT", 0.5)
    news = News()
    with served(news) as (server, place), following(place) as slow:
        news.reported = b"x" * (64 << 20)
        server.wake()
        with suppress(ConnectionError):
            while slow.recv(1000):
                time.sleep(0.002)
        becomes(lambda: news.open == 0)


@pytest.mark.parametrize("last", [lambda client: client.shutdown(socket.SHUT_WR), lambda client: client.sendall(b"x")])
def test_a_half_open_reader_goes(last: Callable[[socket.socket], None]) -> None:
    """One that closed its side, and one that still talks: a reader has said all that it may."""
    news = News()
    with served(news) as (_, place), following(place) as client:
        last(client)
        becomes(lambda: news.open == 0)
        assert client.recv(1) == b""


def test_a_stream_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever still reads it opens it again; a browser that was stopped doesn't."""
    monkeypatch.setattr(http_server, "LIFE", 0.3)
    news = News()
    with served(news) as (_, place), following(place) as client:
        assert client.recv(1) == b""
        becomes(lambda: news.open == 0)


def test_streams_are_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although nobody said that there is anything."""
    monkeypatch.setattr(http_server, "BEAT", 0.05)
    news = News()
    with served(news) as (_, place), following(place) as client:
        news.reported = b"by itself"
        assert heard(client, 9) == b"by itself"


def test_stream_beyond_the_limit_gets_503_and_the_others_go_on() -> None:
    """Neither pages nor silent clients end a stream."""
    news = News()
    with served(news) as (server, place), ExitStack() as stack:
        readers = [stack.enter_context(following(place)) for _ in range(STREAMS)]
        with socket.create_connection(place, timeout=TIMEOUT) as late:
            late.sendall(FOLLOW)
            assert late.recv(12) == b"HTTP/1.0 503"
        silent = [stack.enter_context(socket.create_connection(place)) for _ in range(3 * AT_ONCE)]
        becomes(lambda: len(server._clients) == AT_ONCE)
        with following(place, b"GET /page HTTP/1.0\r\n\r\n") as page:
            assert page.recv(10) == b"here"
        assert len(server._clients) <= AT_ONCE
        news.reported = b"still here"
        server.wake()
        assert [heard(reader, 10) for reader in readers] == [b"still here"] * STREAMS
        assert silent


@pytest.mark.root(only="can connect as another user")
def test_a_stream_of_this_user_takes_the_place_of_another_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever on this host opens as many as there may be keeps the page's owner out of nothing."""
    news = News()
    with served(news) as (_, place), ExitStack() as stack:
        own = stack.enter_context(following(place))
        monkeypatch.setattr(os, "geteuid", lambda: 0)  # the server's thread acts as the other user meanwhile
        os.seteuid(65534)
        try:
            theirs = [stack.enter_context(following(place)) for _ in range(STREAMS - 1)]
            with socket.create_connection(place, timeout=TIMEOUT) as late:
                late.sendall(FOLLOW)
                assert late.recv(12) == b"HTTP/1.0 503"
        finally:
            os.seteuid(0)
        for number in range(STREAMS - 1):
            stack.enter_context(following(place))
            assert theirs[number].recv(1) == b""
        with socket.create_connection(place, timeout=TIMEOUT) as late:
            late.sendall(FOLLOW)
            assert late.recv(12) == b"HTTP/1.0 503"
        news.reported = b"still here"
        assert heard(own, 10) == b"still here"


def test_a_head_alone_opens_nothing() -> None:
    """HEAD asks what there would be."""
    news = News()
    with served(news) as (_, place), following(place, b"HEAD /events HTTP/1.0\r\n\r\n") as client:
        assert client.recv(1) == b""
    assert news.open == 0


def test_many_at_once_leave_nothing_behind() -> None:
    """Threads that open, read and go, all at the same time."""
    news = News()

    def come_and_go() -> None:
        for _ in range(20):
            with suppress(OSError, AssertionError), following(place) as client:
                client.settimeout(0.01)
                client.recv(100)

    with served(news) as (server, place):
        visitors = [threading.Thread(target=come_and_go) for _ in range(8)]
        for visitor in visitors:
            visitor.start()
        for number in range(100):
            news.reported = str(number).encode()
            server.wake()
            time.sleep(0.001)
        for visitor in visitors:
            visitor.join()
        becomes(lambda: news.open == 0 and not server._clients)


def test_a_private_page_is_for_this_user_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of this host get a sentence, and no stream is opened for them."""
    news = News()
    pages = {"/logs": lambda _request: Page(b"", "text/event-stream", opens=news.follow, is_private=True)}
    server = HttpServer(ip_address("127.0.0.1"), 0, pages)
    server.start()
    try:
        place = "127.0.0.1", int(server.place.rpartition(":")[2])
        with following(place, b"GET /logs?service=x HTTP/1.0\r\n\r\n"):
            becomes(lambda: news.open == 1)
        becomes(lambda: news.open == 0)
        monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
        with socket.create_connection(place, timeout=TIMEOUT) as other:
            other.sendall(b"GET /logs HTTP/1.0\r\n\r\n")
            assert other.recv(12) == b"HTTP/1.0 403"
        assert news.open == 0
    finally:
        server.stop()
