"""What clients of a Gateway are asked for at each port, and what is said of authorities that can't be used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway.parsing import BUNDLE_REFERENCE
from locallb.gateway.status_patch import status_patch, withdrawn
from locallb.gateway.statuses import gateway_status
from locallb.gateway.texts import route_lines, sentences
from tests.gateway.conditions import CERT, OK, SERVING, conditions, stand_in
from tests.support.certificates import Authority
from tests.support.gateway_objects import (
    JsonObject,
    api_object,
    gateway,
    gateway_class,
    grant,
    listener,
    objects,
    only,
    route,
    service,
)

KINDS = ("Accepted", "ResolvedRefs", "Programmed")


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    directory = tmp_path_factory.mktemp("authorities")
    return Authority(directory, "one").own.pem, Authority(directory, "other").own.pem


def named(name: str = "ca", **fields: str) -> JsonObject:
    return {"group": "", "kind": "ConfigMap", "name": name, **fields}


def asking(*references: JsonObject, mode: str = "") -> JsonObject:
    """Make a configuration that asks clients for certificates."""
    return {"validation": {"caCertificateRefs": list(references), **({"mode": mode} if mode else {})}}


def at(port: int, tls: JsonObject) -> JsonObject:
    return {"port": port, "tls": tls}


def https(name: str = "https", port: int = 443, **fields: object) -> JsonObject:
    return listener(name, port, "HTTPS", tls={"certificateRefs": [{"name": "cert"}]}, **fields)


def world(pems: tuple[str, str], *listeners: JsonObject, **frontend: object) -> list[JsonObject]:
    """Return a Gateway, with all that it may name."""
    tls = {"frontend": {"default": {}, **frontend}}
    return [
        gateway(*listeners, tls=tls),
        CERT,
        stand_in("ca", BUNDLE_REFERENCE, authorities=pems[0]),
        stand_in("other", BUNDLE_REFERENCE, authorities=pems[1]),
        stand_in("odd", BUNDLE_REFERENCE, problem="it has no ca.crt"),
        stand_in("ca", BUNDLE_REFERENCE, "theirs", authorities=pems[1]),
        route(),
    ]


def requested(one: Any, port: int = 443) -> tuple[str, bool] | None:  # noqa: ANN401 - a bound Gateway
    """Return the authorities of clients at a port, and whether others are let in too."""
    (chain,) = one.chains[port]
    clients = chain.termination.clients
    return (clients.authorities, clients.optional) if clients else None


def test_ports_have_their_own_validation_and_all_others_the_default(pems: tuple[str, str]) -> None:
    """A port of its own may ask for nothing; what isn't HTTPS is asked for nothing anyway."""
    ports = [at(8443, asking(named("other"))), at(9443, {}), at(80, asking(named("gone")))]
    listeners = [https(), https("b", 8443), https("c", 9443), listener()]
    one = only(*world(pems, *listeners, default=asking(named()), perPort=ports))
    assert [requested(one, port) for port in (443, 8443, 9443)] == [(pems[0], False), (pems[1], False), None]
    assert one.chains[80][0].termination is None
    assert all(
        conditions(reported).items() >= OK.items() for reported in gateway_status(one, SERVING).status["listeners"]
    )
    reported = [each for each in sentences(objects(), [one]) if "perPort" in each]
    assert [": spec.tls.frontend.perPort asks clients at port 80 " in each for each in reported] == [True]


NONE = ("False", "NoValidCACertificate")
CASES: dict[str, tuple[list[JsonObject], tuple[str, str], tuple[str, str]]] = {
    "a ConfigMap that isn't there": ([named("gone")], NONE, ("False", "InvalidCACertificateRef")),
    "a ConfigMap without certificates": ([named("odd")], NONE, ("False", "InvalidCACertificateRef")),
    "another kind": ([named(kind="Service")], NONE, ("False", "InvalidCACertificateKind")),
    "another group": ([named(group="a.test")], NONE, ("False", "InvalidCACertificateKind")),
    "another namespace": ([named(namespace="theirs")], NONE, ("False", "RefNotPermitted")),
    "one of two": ([named("gone"), named()], OK["Accepted"], ("False", "InvalidCACertificateRef")),
    "both": ([named(), named("other")], OK["Accepted"], OK["ResolvedRefs"]),
}


@pytest.mark.parametrize("case", CASES)
def test_authorities_that_cannot_be_used_say_so_at_the_listeners_that_need_them(
    case: str, pems: tuple[str, str]
) -> None:
    """Where there is another one it counts; where there is none nobody is let in, and neighbours are served."""
    references, accepted, resolved = CASES[case]
    documents = world(pems, https(), https("b", 8443), default=asking(*references), perPort=[at(8443, asking(named()))])
    one = only(*documents)
    first, second = map(conditions, gateway_status(one, SERVING).status["listeners"])
    serves = accepted == OK["Accepted"]
    assert [first[kind] for kind in KINDS] == [accepted, resolved, OK["Programmed"] if serves else ("False", "Invalid")]
    assert OK.items() <= second.items()
    assert (443 in one.chains) == serves
    assert requested(one, 8443) == (pems[0], False)
    if serves:
        assert requested(one) == (pems[0] + (pems[1] if case == "both" else ""), False)
    else:
        reported = sentences(objects(gateway_class(), service(), *documents), [one])
        assert any("listener https: NoValidCACertificate" in sentence for sentence in reported)


def test_a_grant_lets_a_gateway_name_authorities_elsewhere(pems: tuple[str, str]) -> None:
    """A grant for Gateways, to ConfigMaps."""
    allowed = grant("theirs", kind="Gateway", what="ConfigMap")
    one = only(*world(pems, https(), default=asking(named(namespace="theirs"))), allowed)
    assert requested(one) == (pems[1], False)


def test_listeners_of_sets_ask_as_the_gateway_does(pems: tuple[str, str]) -> None:
    """Nobody gets around what a Gateway asks for by a listener of his own."""
    spec = {"parentRef": {"name": "web"}, "listeners": [https("theirs", 444), https("named", 443, hostname="b.test")]}
    made, *others = world(pems, https(), default=asking(named()))
    made["spec"]["allowedListeners"] = {"namespaces": {"from": "Same"}}
    one = only(made, *others, api_object("ListenerSet", "set", spec=spec))
    chains = [chain for port in (443, 444) for chain in one.chains[port]]
    assert len(chains) == 3
    assert all(chain.termination and chain.termination.clients for chain in chains)


def test_an_insecure_mode_is_said_at_the_gateway_for_as_long_as_it_is_there(pems: tuple[str, str]) -> None:
    """Whoever is let in; the condition goes with it, and with us."""
    insecure = only(*world(pems, https(), default=asking(named(), mode="AllowInsecureFallback")))
    assert requested(insecure) == (pems[0], True)
    reported = gateway_status(insecure, SERVING).status
    assert conditions(reported)["InsecureFrontendValidationMode"] == ("True", "ConfigurationChanged")
    assert route_lines(insecure) == ("443: */* → shop/api:8080, clients may show a certificate",)
    live = {"metadata": {"resourceVersion": "1"}, "status": reported}
    secure = only(*world(pems, https(), default=asking(named())))
    assert route_lines(secure) == ("443: */* → shop/api:8080, clients must show a certificate",)
    for wanted in (gateway_status(secure, SERVING).status, withdrawn(reported)):
        patch = status_patch(live, wanted, 1, "2026-11-22T20:00:00Z")
        assert patch
        status = patch["status"]
        assert isinstance(status, dict)
        assert conditions(status).keys() == {"Accepted", "Programmed"}


@pytest.mark.parametrize(
    ("frontend", "problem"),
    [
        ({"perPort": [at(1, {}), at(1, {})]}, "spec.tls.frontend.perPort has port 1 twice; write each once"),
        ({"perPort": [at(0, {})]}, "use a number from 1 to 65535"),
        ({"perPort": 7}, "spec.tls.frontend.perPort is 7; give a list"),
    ],
)
def test_invalid_client_validation_serves_no_client(frontend: JsonObject, problem: str, pems: tuple[str, str]) -> None:
    """Rather than let anybody in."""
    one = only(*world(pems, https(), **frontend))
    assert one.chains == {}
    assert one.failure
    assert problem in one.failure.message


@pytest.mark.parametrize(
    ("asked_for", "problem"),
    [
        (asking(), "spec.tls.frontend.default.validation.caCertificateRefs is empty; name a ConfigMap"),
        (asking(*[named()] * 17), "has 17 entries; 16 are allowed"),
        (asking(named(), mode="Maybe"), "use AllowValidOnly or AllowInsecureFallback"),
        (asking(named("../a")), "use lower-case letters"),
        ({"validation": 7}, "give an object"),
    ],
)
def test_invalid_validation_of_a_port_refuses_its_clients(
    asked_for: JsonObject, problem: str, pems: tuple[str, str]
) -> None:
    """Others of the Gateway are served."""
    ports = [at(8443, asking(named()))]
    one = only(*world(pems, https(), https("b", 8443), listener(), default=asked_for, perPort=ports))
    assert sorted(one.chains) == [80, 8443]
    refused = one.listeners[0].accepted
    assert refused
    assert refused.reason == "UnsupportedValue"
    assert problem in refused.message


def test_authorities_are_bounded_for_each_listener_and_all_of_a_gateway(pems: tuple[str, str]) -> None:
    """Those that come first are served."""
    many = pems[0] * (200 * 1024 // len(pems[0]))
    large = [stand_in(f"large-{number}", BUNDLE_REFERENCE, authorities=many) for number in range(2)]
    both = asking(named("large-0"), named("large-1"))
    one = only(*world(pems, https(), default=both), *large)
    assert requested(one) == (many, False)
    (reported,) = gateway_status(one, SERVING).status["listeners"]
    assert conditions(reported)["ResolvedRefs"] == ("False", "InvalidCACertificateRef")
    listeners = [https(f"l{number}", 1000 + number) for number in range(7)]
    one = only(*world(pems, *listeners, default=asking(named("large-0"))), *large)
    assert sorted(one.chains) == [1000, 1001, 1002, 1003, 1004]
    seventh = gateway_status(one, SERVING).status["listeners"][6]
    assert conditions(seventh)["Accepted"] == NONE


_modes = st.sampled_from(["AllowValidOnly", "AllowInsecureFallback"])
_names = st.sampled_from(["ca", "other", "odd", "gone"])
_requested = st.none() | st.tuples(st.lists(_names, min_size=1, max_size=3), _modes)


@given(_requested, st.dictionaries(st.sampled_from([443, 8443]), _requested))
def test_no_listener_serves_without_the_authorities_that_its_port_asks_for(
    pems: tuple[str, str],
    default: Any,  # noqa: ANN401 - drawn
    ports: dict[int, Any],
) -> None:
    """Whatever else is wrong: a port asks for what it shall by what can be used of it, or serves nobody."""

    def tls(drawn: Any) -> JsonObject:  # noqa: ANN401 - drawn
        return asking(*map(named, drawn[0]), mode=drawn[1]) if drawn else {}

    frontend = {"default": tls(default), "perPort": [at(port, tls(drawn)) for port, drawn in ports.items()]}
    one = only(*world(pems, https(), https("b", 8443), **frontend))
    for port in (443, 8443):
        drawn = ports.get(port, default)
        wanted = "".join({"ca": pems[0], "other": pems[1]}.get(name, "") for name in drawn[0]) if drawn else ""
        if drawn and not wanted:
            assert port not in one.chains
        else:
            assert requested(one, port) == ((wanted, drawn[1] == "AllowInsecureFallback") if drawn else None)
