"""Envoy's verdict on files that refer to each other: the same as of the running one, with the innermost cause."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from locallb.envoy import render, validation
from locallb.envoy.binary import EnvoyBinary
from locallb.envoy.validation import NoVerdictError, reported_refused, why_refused
from locallb.model.http_routes import Forward, HttpRoute, Match, Target
from locallb.model.http_serving import (
    ANY,
    BackendTls,
    Chain,
    ClientValidation,
    HttpBackends,
    HttpListener,
    HttpRoutes,
    Termination,
    VirtualHost,
)
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, Proxy, Upstream
from locallb.programs import EndedProgram
from tests.support.certificates import Authority, Pair

pytestmark = pytest.mark.envoy


def rendered(pair: Pair, authority: Authority, discovery: Discovery) -> dict[str, str]:
    """Render a proxy with routes, certificates, authorities and endpoints."""
    to = UpstreamName("tcp-80")
    routes = HttpRoutes((VirtualHost((ANY,), (HttpRoute(Match(), Forward((Target(to),))),)),))
    secure = BackendTls("a.test", authority.own.pem, client=pair.reference("web"))
    backends = (Backend.at(ip_address("127.0.0.1"), 80),)
    clients = Termination((pair.reference("web"),), ClientValidation(authority.own.pem))
    proxy = Proxy(
        ProxyName("kind/gateways/default/web"),
        ProxyId("0123456789ab"),
        discovery,
        upstreams=(Upstream(to, Protocol.TCP, backends, http=HttpBackends(tls=secure)),),
        http=(HttpListener(ip_address("127.77.0.9"), 8443, (Chain(routes, ("a.test",), clients),)),),
        may_serve_http=True,
    )
    return dict(render(proxy).files)


def changed(files: Mapping[str, str], kind: str, change: Mapping[str, Any]) -> dict[str, str]:
    """Change the first resource of a file whose name begins so."""
    name = next(name for name in files if name.startswith(kind))
    document = json.loads(files[name])
    document["resources"][0] |= change
    return {**files, name: json.dumps(document)}


@pytest.mark.parametrize("discovery", list(Discovery))
def test_what_a_proxy_serves_is_accepted(
    discovery: Discovery, tmp_path: Path, pair: Pair, authority: Authority
) -> None:
    """By files that refer to each other, and with everything inside."""
    pair.put(tmp_path, "web")
    assert why_refused(rendered(pair, authority, discovery), tmp_path) == ""


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        ("rds-", {"virtual_hosts": [{"name": "a", "domains": []}]}, "Domains: value must contain at least 1 item"),
        ("rds-", {"internal_only_headers": ["a\nb"]}, "InternalOnlyHeaders[0]"),
        ("eds-", {"endpoints": [{"lb_endpoints": [{"endpoint": {"hostname": "a"}}]}]}, ""),
        ("cds", {"dns_refresh_rate": "0s"}, "DnsRefreshRate: value must be greater than"),
        ("lds", {"access_log": [{"name": "none"}]}, "Didn't find a registered implementation for 'none'"),
    ],
)
def test_what_is_refused_has_its_cause(  # noqa: PLR0913, PLR0917 - fixtures and a table
    kind: str, change: Mapping[str, Any], why: str, tmp_path: Path, pair: Pair, authority: Authority
) -> None:
    """Whatever file it is in."""
    pair.put(tmp_path, "web")
    cause = why_refused(changed(rendered(pair, authority, Discovery.EDS), kind, change), tmp_path)
    assert cause
    assert why in cause
    assert len(cause) <= 200
    assert cause.isprintable()


def test_where_envoy_cannot_be_asked_there_is_no_verdict(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    """A directory or a certificate that isn't there proves nothing about the files."""
    bad = changed(rendered(pair, authority, Discovery.EDS), "cds", {"dns_refresh_rate": "0s"})
    for directory in (tmp_path / "gone", tmp_path):
        with pytest.raises(NoVerdictError):
            why_refused(bad, directory)


@pytest.mark.parametrize("script", ["kill -KILL $$", "kill -TERM $$", "exec sleep 60"])
def test_envoy_without_an_answer_gives_no_verdict(
    script: str, tmp_path: Path, pair: Pair, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither accepted nor refused: it was ended, or takes too long."""
    pair.put(tmp_path, "web")
    program = tmp_path / "envoy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(validation, "installed", lambda: EnvoyBinary(program, "1.0.0"))
    monkeypatch.setattr(validation, "TIMEOUT", 0.3)
    with pytest.raises(NoVerdictError):
        why_refused(rendered(pair, authority, Discovery.EDS), tmp_path)


def test_the_same_files_are_asked_about_once(
    tmp_path: Path, pair: Pair, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused or accepted; with another certificate under the same name they are asked about again."""
    pair.put(tmp_path, "web")
    good = rendered(pair, authority, Discovery.EDS)
    bad = changed(good, "cds", {"dns_refresh_rate": "0s"})
    cause = why_refused(bad, tmp_path)
    assert reported_refused(lambda: bad, tmp_path) == cause != ""
    assert reported_refused(lambda: good, tmp_path) == ""
    assert why_refused(good, tmp_path) == ""
    requested = list[Path]()

    def ended(_configuration: str, directory: Path, _patience: float) -> EndedProgram:
        requested.append(directory)
        return EndedProgram(0, b"", b"")

    monkeypatch.setattr(validation, "_ended", ended)
    assert (why_refused(bad, tmp_path), why_refused(good, tmp_path)) == (cause, "")
    assert requested == []
    pair.put(tmp_path, "web")
    assert why_refused(bad, tmp_path) == ""
    assert requested == [tmp_path]
