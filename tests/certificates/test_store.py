"""This user's own authority: made once, its key for nobody else, and a sentence for whatever else lies there."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from locallb.certificates import store
from locallb.certificates.local import DOMAINS, VALID_DAYS
from locallb.certificates.store import AuthorityError, KeyPair, make_authority, observed
from locallb.storage import files
from locallb.storage.files import FilesError
from locallb.storage.key_pairs import key_pair_fault

NOW = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "local-lb" / "ca"


def handshake(authority: bytes, pair: KeyPair, host: str, directory: Path) -> str:
    """Have a client of OpenSSL believe the authority alone, and ask for a host; return why it doesn't trust it."""
    files = directory / "chain.pem", directory / "key.pem"
    for file, text in zip(files, (pair.certificate, pair.key), strict=True):
        file.write_bytes(text)
    of_server, of_client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    of_server.load_cert_chain(*files)
    of_client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    of_client.load_verify_locations(cadata=authority.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = of_server.wrap_bio(to_server, to_client, server_side=True)
    client = of_client.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""


def test_signed_certificate_is_trusted_for_its_hosts_only(place: Path, tmp_path: Path) -> None:
    """Hostnames, one label of a wildcard, addresses of both families; for ninety days, from a day ago."""
    real = dt.datetime.now(dt.UTC)
    existing = store.ensure(real)
    pair = store.sign(existing, ["a.test", "*.b.test", "127.77.0.5", "::1"], real)
    assert key_pair_fault(pair.certificate, pair.key) == ""
    for host in ("a.test", "x.b.test", "127.77.0.5", "::1"):
        assert handshake(existing.pem.encode(), pair, host, tmp_path) == "", host
    for host in ("c.test", "x.y.b.test", "127.77.0.6"):
        assert "mismatch" in handshake(existing.pem.encode(), pair, host, tmp_path), host
    made = observed(pair.certificate)
    assert made.ends - real == dt.timedelta(days=VALID_DAYS) - dt.timedelta(microseconds=real.microsecond)
    assert dt.timedelta(hours=23) < real - made.begins < dt.timedelta(hours=25)
    assert str(place) == str(existing.directory)


@pytest.mark.parametrize(("host", "why"), [("shop.example.com", "permitted subtree"), ("8.8.8.8", "permitted subtree")])
def test_authority_certificate_is_constrained_to_its_own_domains(
    host: str, why: str, place: Path, tmp_path: Path
) -> None:
    """Whoever steals the key can't be a bank: the certificate of the authority itself says for what it counts."""
    real = dt.datetime.now(dt.UTC)
    existing = store.ensure(real)
    pair = store.sign(existing, [host], real)
    assert why in handshake(existing.pem.encode(), pair, host, tmp_path)
    more = store.create((*DOMAINS, "example.com"), real, replace=True)
    reported = handshake(more.pem.encode(), store.sign(more, [host], real), host, tmp_path)
    assert reported == "" or host == "8.8.8.8"
    assert place.exists()


def test_private_key_is_readable_by_owner_only_and_created_once(place: Path) -> None:
    """Whatever the umask; of twenty who make one at the same time, all get the same."""
    before = os.umask(0)
    try:
        with ThreadPoolExecutor(20) as pool:
            ready = threading.Barrier(20)

            def make(_number: int) -> str:
                ready.wait()
                return store.ensure(NOW).observed.fingerprint

            assert len(set(pool.map(make, range(20)))) == 1
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()} == {"ca.crt": 0o644, "ca.key": 0o600}
    assert place.stat().st_mode & 0o777 == 0o700


def test_the_authority_ends_before_what_it_signs_would(place: Path) -> None:
    """Nothing outlives it."""
    existing = store.ensure(NOW)
    pair = store.sign(existing, ["a.test"], existing.observed.ends - MINUTE)
    assert observed(pair.certificate).ends == existing.observed.ends
    assert place.exists()


def _other(name: str) -> Callable[[Path], object]:
    """Put a file of another authority in place."""
    pair = make_authority("other", (), NOW)
    text = pair.certificate if name == store.CERTIFICATE else pair.key
    return lambda place: (place / name).write_bytes(text)


def _directory(place: Path) -> None:
    (place / "ca.key").unlink()
    (place / "ca.key").mkdir(0o700)


def _linked(name: str) -> Callable[[Path], object]:
    def link(place: Path) -> None:
        path = place / name if name else place
        path.rename(path.with_name("elsewhere"))
        path.symlink_to(path.with_name("elsewhere"))

    return link


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda place: (place / "ca.crt").write_text("x"), "ca.crt can't be used: it isn't a certificate in PEM"),
        (lambda place: (place / "ca.crt").write_bytes(b"\xff" * 70_000), "ca.crt is larger than 65536 bytes"),
        (lambda place: (place / "ca.crt").chmod(0o666), "ca.crt has mode 666, so that others may write it"),
        (lambda place: (place / "ca.key").write_text("x"), "ca.key can't be used: it isn't a key in PEM"),
        (lambda place: (place / "ca.key").unlink(), "ca.key is gone"),
        (lambda place: (place / "ca.key").chmod(0o640), "ca.key has mode 640, so that others may read it"),
        (lambda place: place.chmod(0o777), "ca has mode 777, so that others may write there"),
        (
            lambda place: ((place / "ca.key").unlink(), (place / "ca.key").mkdir(0o700)),
            "ca.key can't be read: Is a directory",
        ),
        (_other("ca.crt"), "ca.key isn't the key of"),
        (_other("ca.key"), "ca.key isn't the key of"),
        (_linked("ca.key"), "ca.key is a link; put what it leads to in its place"),
        (_linked("ca.crt"), "ca.crt is a link; put what it leads to in its place"),
        (_linked(""), "ca is a link; put what it leads to in its place"),
    ],
)
def test_unusable_authority_files_are_reported_and_kept(
    damage: Callable[[Path], object], complaint: str, place: Path
) -> None:
    """One sentence with the path and the remedy; nothing of a key in it, and no other one is made instead."""
    store.ensure(NOW)
    damage(place)
    before = sorted((path.name, path.lstat().st_mtime_ns) for path in place.iterdir())
    with pytest.raises(AuthorityError) as caught:
        store.sign(store.ensure(NOW), ["a.test"], NOW)
    reported = str(caught.value)
    assert complaint in reported
    assert "\n" not in reported
    assert ";" in reported or ":" in reported
    assert "PRIVATE" not in reported
    assert sorted((path.name, path.lstat().st_mtime_ns) for path in place.iterdir()) == before


@pytest.mark.parametrize(
    ("moved", "complaint"),
    [(dt.timedelta(days=-400), "set the clock"), (dt.timedelta(days=4000), "has ended on 2036-11-19; make another")],
)
def test_a_clock_that_cannot_be_right_signs_nothing(moved: dt.timedelta, complaint: str, place: Path) -> None:
    """Before the authority begins and after its end."""
    existing = store.ensure(NOW)
    with pytest.raises(AuthorityError, match=complaint):
        store.sign(existing, ["a.test"], NOW + moved)
    assert complaint in store.fault(existing, NOW + moved)
    assert store.fault(existing, NOW) == ""
    assert place.exists()


@pytest.mark.root(only="can give a file to another user")
def test_authority_of_another_user_is_not_used(place: Path) -> None:
    """Neither its directory nor its files."""
    store.ensure(NOW)
    for path in (place / "ca.key", place / "ca.crt", place):
        os.chown(path, 1000, -1)
        with pytest.raises(AuthorityError, match="belongs to user 1000; run as that user"):
            store.sign(store.ensure(NOW), ["a.test"], NOW)
        os.chown(path, 0, -1)


def test_a_lost_authority_is_made_again_and_a_replaced_one_is_another(place: Path) -> None:
    """Whatever is left of the old one."""
    first = store.ensure(NOW)
    (place / "ca.crt").unlink()
    second = store.ensure(NOW)
    third = store.create((), NOW, replace=True)
    shutil.rmtree(place)
    fourth = store.ensure(NOW)
    assert len({existing.observed.fingerprint for existing in (first, second, third, fourth)}) == 4
    assert third.observed.domains == ()
    assert fourth.observed.domains == DOMAINS
    for existing in (fourth,):
        assert store.sign(existing, ["a.test"], NOW).certificate.startswith(b"-----BEGIN CERTIFICATE")


@pytest.mark.parametrize("unwritten", [store.KEY, store.CERTIFICATE])
def test_authority_that_cannot_be_replaced_is_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch, unwritten: str
) -> None:
    """As on a full disk: with its key, and with nothing beside it."""
    existing, write = store.create(DOMAINS, NOW), files.write_sibling
    before = {path.name: path.read_bytes() for path in place.iterdir()}

    def full(path: Path, *terms: Any, **named: Any) -> Path:  # noqa: ANN401 - those of `write_sibling`
        if path.name == unwritten:
            raise FilesError("No space left on device")
        return write(path, *terms, **named)

    monkeypatch.setattr(files, "write_sibling", full)
    monkeypatch.setattr(files, "write", full)
    with pytest.raises(FilesError):
        store.create(DOMAINS, NOW, replace=True)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    assert store.find() == existing
