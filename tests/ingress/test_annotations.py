"""Annotations of other controllers: which values are kept, what is told of others, and that nothing raises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.config.parsing import parse_ingress
from locallb.config.settings import Dialect
from locallb.config.values import Mistakes
from locallb.ingress import annotations as nginx
from locallb.ingress.annotations import NONE, TRAEFIK, policy_of
from locallb.ingress.translation import BoundIngresses
from locallb.model.gateway_objects import Meta, Named
from locallb.model.gateway_of_cluster import Ingress
from locallb.model.http_routes import DirectResponse, Forward, HttpRoute, PathKind, PathMatch, Redirect
from locallb.model.http_serving import HttpRoutes
from tests.support.ingress_objects import JsonObject, backend, ingress, only, path, rule, secret

BOTH = frozenset(Dialect)
SPECIFIC = "ImplementationSpecific"


def annotated(*paths: JsonObject, name: str = "web", prefix: str = nginx.PREFIX, **stated: str) -> JsonObject:
    """Make an Ingress for a.test with annotations, `-` written as `_`."""
    annotations = {f"{prefix}{key.replace('_', '-')}": text for key, text in stated.items()}
    return ingress(
        rule(*(paths or (path(),)), host="a.test"), name=name, metadata={"name": name, "annotations": annotations}
    )


def served(bound: BoundIngresses, port: int = 80) -> list[HttpRoute]:
    (chain,) = (chain for chain in bound.chains[port] if not chain.names or "a.test" in chain.names)
    assert isinstance(chain.serves, HttpRoutes)
    return [route for host in chain.serves.hosts if host.domains == ("a.test",) for route in host.routes]


@pytest.mark.parametrize(
    ("stated", "reported"),
    [
        ({"rewrite_target": "api"}, "isn't a path"),
        ({"rewrite_target": "/$host"}, 'rewrite-target is "/$host"; give a path such as /$2'),
        ({"rewrite_target": "/\\1"}, "in which only groups of the path are named"),
        ({"rewrite_target": "/a?b"}, "isn't a path"),
        ({"rewrite_target": "http://x.test/"}, "isn't a path"),
        ({"rewrite_target": "/$1"}, "rewrite-target of /: only a route that matches by an expression has groups"),
        ({"use_regex": "perhaps"}, 'use-regex is "perhaps"; use true or false'),
        ({"permanent_redirect": "/elsewhere"}, "give a URL such as https://shop.test/new"),
        ({"permanent_redirect": "https://a.test/$uri"}, "give a URL such as"),
        ({"permanent_redirect": "https://a.test/x$request_uri"}, "or one of a host alone with $request_uri after it"),
        ({"permanent_redirect": "javascript:alert(1)"}, "give a URL such as"),
        ({"temporal_redirect": "https://a.test/\r\nset-cookie: x"}, "give a URL such as"),
        ({"permanent_redirect": "https://a.test", "permanent_redirect_code": "304"}, "use one of 301, 302"),
        ({"permanent_redirect": "https://x.test:99999$request_uri"}, "permanent-redirect: port"),
        ({"permanent_redirect": "https://x.test:99999/x"}, "permanent-redirect: port"),
        ({"temporal_redirect": "https://-$request_uri"}, "temporal-redirect: "),
        ({"permanent_redirect": "https://..$request_uri"}, "permanent-redirect: "),
        ({"permanent_redirect_code": "200"}, "use a number from 300 to 308"),
        ({"backend_protocol": "FCGI"}, 'backend-protocol is "FCGI"; use one of HTTP, HTTPS, GRPC, GRPCS'),
        ({"whitelist_source_range": ""}, "give ranges such as 10.0.0.0/8"),
        ({"allowlist_source_range": "10.0.0.0/8 fd00::/8"}, "with commas between them"),
        ({"whitelist_source_range": "::%x/0"}, "give ranges such as 10.0.0.0/8"),
        ({"allowlist_source_range": "10.0.0.0/8,fe80::%eth0/64"}, "give ranges such as 10.0.0.0/8"),
        ({"whitelist_source_range": "1," * 300}, "list at most 200"),
        ({"whitelist_source_range": "1" * 5000}, "give at most 4096 characters"),
    ],
)
def test_invalid_annotation_values_answer_503_and_are_reported(stated: dict[str, str], reported: str) -> None:
    """In one sentence; the route isn't served without what the annotation asks for."""
    one = only(annotated(**stated), annotations=BOTH)
    assert [route.action for route in served(one)] == [DirectResponse(503)]
    (notice,) = one.notices
    assert notice.startswith("demo: Ingress shop/web: ")
    assert reported in notice


@pytest.mark.parametrize(
    ("stated", "reported"),
    [
        ({"app_root": "app"}, 'app-root: "app" isn\'t a path'),
        ({"ssl_redirect": "si"}, "use true or false"),
        ({"proxy_read_timeout": "60s"}, 'proxy-read-timeout is "60s"; use a number from 1 to 604800'),
        ({"proxy_read_timeout": "0"}, "use a number from 1 to 604800"),
        ({"enable_cors": "true", "cors_allow_origin": "https://*.a.test"}, "give origins such as https://a.test:8443"),
        ({"enable_cors": "true", "cors_allow_methods": "GET POST"}, "isn't the name of a header"),
        (
            {"enable_cors": "true", "cors_allow_origin": "https://a.test", "cors_allow_headers": "*"},
            "with credentials * means nothing to browsers",
        ),
        ({"enable_cors": "true", "cors_max_age": "-1"}, "use a number from 0 to"),
        (
            {"proxy_send_timeout": "5", "proxy_body_size": "1m"},
            "and nothing comes of them: proxy-body-size, proxy-send",
        ),
        ({"auth_type": "", "enable_modsecurity": "false"}, "nothing comes of them: auth-type, enable-modsecurity"),
        ({"canary_weight": "-1", "x": ""}, "aren't understood, and nothing comes of them: x"),
    ],
)
def test_the_rest_is_reported_and_served_without_it(stated: dict[str, str], reported: str) -> None:
    """One sentence each, and the backend is asked."""
    one = only(annotated(**stated), annotations=BOTH)
    (notice,) = one.notices
    assert reported in notice
    (route,) = served(one)
    assert isinstance(route.action, Forward)
    assert route.cors is None


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ("/a|/b", "put its choices in parentheses"),
        ("a/(.*)", "begin an expression with a slash"),
        ("/a)(b", "is refused by RE2: unexpected )"),
        ("/(?=x)", "looks around, which RE2 can't"),
        ("/a{10}{10}", "is refused by RE2: bad repetition operator: {10}{10}"),
        ("/(a{1000}){9}", "becomes too large"),
        ("/" + "a" * 1100, "1 to 1024 printable ASCII characters"),
    ],
)
def test_expressions_that_are_none(written: str, reported: str) -> None:
    """Whatever begins as they do is refused, and nobody else has it; they are reported."""
    one = only(annotated(path(written, SPECIFIC), use_regex="true"), annotations=BOTH)
    (refused,) = served(one)
    assert refused.action == DirectResponse(503)
    (notice,) = one.notices
    assert reported in notice


def test_expressions_only_where_they_are_asked_for() -> None:
    """By the key and the annotation; choices in groups and sets are no choice of the whole."""
    written = r"/(a|b)[|]\|c"
    document = annotated(path(written, SPECIFIC), use_regex="true")
    (route,) = served(only(document, annotations=BOTH))
    assert route.match.path == PathMatch(PathKind.REGEX, f"(?i:{written}).*")
    assert "expressions aren't served" in only(document).notices[0]
    assert "expressions aren't served" in only(annotated(path(written, SPECIFIC)), annotations=BOTH).notices[0]


def test_without_the_key_nothing_is_read() -> None:
    """What an Ingress says to others stays theirs, and nothing is told of it."""
    one = only(annotated(permanent_redirect="https://b.test", whitelist_source_range="x"))
    assert not one.notices
    assert isinstance(served(one)[0].action, Forward)
    assert not any(chain.serves.by_source for chain in one.chains[80] if isinstance(chain.serves, HttpRoutes))


def test_challenges_stay_where_they_are() -> None:
    """Everything else of a host with a certificate leads to HTTPS."""
    challenge = "/.well-known/acme-challenge/token"
    document = annotated(path(challenge, "Exact"), path("/"), ssl_redirect="true")
    document["spec"]["tls"] = [{"hosts": ["a.test"], "secretName": "cert"}]
    one = only(document, secret(), annotations=BOTH)
    first, second = served(one)
    assert isinstance(first.action, Forward)
    assert second.action == Redirect(308, "https", port=443)
    assert all(isinstance(route.action, Forward) for route in served(one, 443))


@pytest.mark.parametrize(("word", "is_sent"), [("ssl_redirect", False), ("force_ssl_redirect", True)])
def test_the_certificate_of_another_namespace_redirects_no_client_to_https(word: str, is_sent: bool) -> None:  # noqa: FBT001
    """Unless the Ingress says that it must be: whoever comes later would send everybody's clients to its own."""
    document = annotated(**{word: "true"})
    later = ingress(rule(path(), host="b.test"), name="later", namespace="team")
    later["spec"]["tls"] = [{"secretName": "cert"}]
    one = only(document, later, secret(namespace="team"), annotations=BOTH)
    (route,) = served(one)
    assert isinstance(route.action, Redirect if is_sent else Forward)


def test_a_canary_stays_in_its_namespace_and_gives_up_without_a_backend() -> None:
    """The share of another namespace's would be taken from who never asked for it."""
    canary = annotated(path(), name="new", canary="true", canary_weight="100")
    foreign = {**canary, "metadata": {**canary["metadata"], "namespace": "team"}}
    one = only(annotated(), foreign, annotations=BOTH)
    assert "Ingress team/new: no other Ingress of its namespace has a.test/" in one.notices[0]
    lost = annotated(path(to=backend("gone")), name="new", canary="true", canary_weight="100")
    (route,) = served(only(annotated(), lost, annotations=BOTH))
    assert isinstance(route.action, Forward)
    assert [target.weight for target in route.action.targets] == [1]


@pytest.mark.parametrize("stated", [{"canary": "yes"}, {"canary": "true", "canary_weight": "half"}])
def test_a_canary_that_makes_no_sense_takes_nothing(stated: dict[str, str]) -> None:
    """Although it is the first by name, as the older one would be."""
    one = only(annotated(), annotated(path(to=backend("gone")), name="a-canary", **stated), annotations=BOTH)
    (route,) = served(one)
    assert isinstance(route.action, Forward)
    (reported,) = one.notices
    assert "Ingress shop/a-canary: nginx.ingress.kubernetes.io/canary" in reported


def test_by_tls_alone_without_a_certificate_is_reported() -> None:
    """It is served nowhere, and for no other reason."""
    document = annotated(prefix=TRAEFIK, **{"router.tls": "true"})
    (reported,) = only(document, annotations=BOTH).notices
    assert "a.test is served by TLS alone, as its annotations say, and has no certificate; name one in" in reported
    document["spec"]["tls"] = [{"hosts": ["a.test"], "secretName": "cert"}]
    assert not only(document, secret(), annotations=BOTH).notices


_prefixes = st.sampled_from([nginx.PREFIX, TRAEFIK, ""])
_TERMS = """rewrite-target use-regex permanent-redirect temporal-redirect permanent-redirect-code app-root canary
backend-protocol whitelist-source-range ssl-redirect force-ssl-redirect proxy-read-timeout enable-cors cors-max-age
cors-allow-origin cors-allow-methods cors-allow-headers canary-weight canary-weight-total canary-by-header
canary-by-header-value canary-by-header-pattern router.entrypoints router.tls"""
_names = st.sampled_from(_TERMS.split()) | st.text(max_size=5)
_texts = st.sampled_from(
    [
        "true",
        "false",
        "*",
        "/",
        "/$1",
        "0",
        "99999999999999999999",
        "10.0.0.0/8",
        "https://a.test",
        "GRPC",
        "web",
        "(a|b)*",
    ]
) | st.text(max_size=20)
_annotations = st.dictionaries(st.builds(str.__add__, _prefixes, _names), _texts, max_size=8)


@given(_annotations, st.sampled_from([BOTH, frozenset[Dialect](), frozenset({Dialect.NGINX})]))
def test_any_annotation_text_gives_short_sentences(stated: dict[str, str], dialects: frozenset[Dialect]) -> None:
    """Whatever stands there, each sentence is short and on one line; without a dialect there is none."""
    policy = policy_of(Ingress(Meta(Named("shop", "web"), annotations=stated)), dialects)
    assert all(len(line) < 700 and line.isprintable() for line in policy.problems)
    assert dialects or policy == NONE


@given(_annotations, st.sampled_from(["/", "/a(b)", "/(x|y)/(.*)", "/a|b", "é"]))
def test_each_path_has_a_route_or_a_reason(stated: dict[str, str], written: str) -> None:
    """Each path has a route, or a sentence says why not."""
    metadata = {"name": "web", "namespace": "shop", "annotations": stated}
    document = ingress(rule(path(written, SPECIFIC), host="a.test"), metadata=metadata)
    one = only(document, annotations=BOTH)
    assert served(one) or one.notices or policy_is_elsewhere(stated)


def policy_is_elsewhere(stated: dict[str, str]) -> bool:
    """Return whether an Ingress is served by TLS alone."""
    return f"{TRAEFIK}router.entrypoints" in stated or f"{TRAEFIK}router.tls" in stated


def test_annotation_dialects_are_a_list_of_controllers() -> None:
    """A list of controllers."""
    mistakes = Mistakes()
    assert parse_ingress(mistakes, {"annotations": ["nginx", "traefik"]}).annotations == BOTH
    assert not mistakes.sentences
    parse_ingress(mistakes, {"annotations": ["ngnix"]})
    assert mistakes.sentences == [
        'local-lb:ingress.annotations: "ngnix" is no controller whose annotations are known; use nginx or traefik'
    ]


def test_large_expressions_fill_no_proxy_and_affect_no_others() -> None:
    """Neither by themselves nor as what a canary takes a share of; small ones that come later are served."""
    large = [path(f"/{number}" + "(?:ab){620}" * 4, SPECIFIC) for number in range(150)]
    evil = annotated(*large, name="evil", use_regex="true")
    canary = annotated(*large, name="share", canary="true", canary_weight="10")
    usual = annotated(*(path(f"/{n}(/|$)(.*)", SPECIFIC) for n in range(500)), name="zz", use_regex="true")
    bound = only(evil, canary, usual, annotations=BOTH)
    reported = (
        "with it its address would have more than 20000 routes of all hosts, of which a large expression counts as"
    )
    assert [why for _, why, _ in bound.failures if reported in why] == [
        f"{reported} several; name hosts in its rules, or use simpler expressions"
    ]
    assert len(served(bound)) == 650


@pytest.mark.parametrize(
    "guard",
    [
        {"auth_url": "https://login.test"},
        {"auth_type": "basic"},
        {"auth_tls_secret": "shop/clients"},
        {"denylist_source_range": "10.0.0.0/8"},
        {"configuration_snippet": "deny all;"},
        {"server_snippet": "deny all;"},
        {"enable_modsecurity": "true"},
        {"proxy_ssl_verify": "on"},
    ],
)
def test_who_would_have_been_kept_out_is_not_let_in(guard: dict[str, str]) -> None:
    """Annotations that guard and aren't served close their Ingress, until they are removed."""
    one = only(annotated(**guard), annotations=BOTH)
    (route,) = served(one)
    assert route.action == DirectResponse(503)
    (notice,) = one.notices
    assert "answered 503 until they are removed" in notice


@pytest.mark.parametrize("name", ["router.middlewares", "router.tls.options"])
def test_guards_of_traefik_close_an_ingress_too(name: str) -> None:
    """Middlewares may ask for passwords, options of TLS for certificates."""
    annotations = {f"traefik.ingress.kubernetes.io/{name}": "shop-auth@kubernetescrd"}
    guarded = ingress(rule(path(), host="a.test"), metadata={"annotations": annotations})
    (route,) = served(only(guarded, annotations=BOTH))
    assert route.action == DirectResponse(503)


@pytest.mark.parametrize(
    ("document", "is_own"),
    [
        (ingress(), True),
        (ingress(rule(path(), host="-odd-")), True),
        (ingress(rule({"path": "/a", "pathType": "Odd", "backend": path()["backend"]})), True),
        (annotated(path("/a", SPECIFIC), use_regex="true", rewrite_target="/$3"), True),
        (annotated(path("/a(", SPECIFIC), use_regex="true"), True),
        (annotated(path(), canary="true", canary_weight="10"), False),
        (ingress(rule(path(to="missing"))), False),
        (ingress(rule(path(), host="a.test"), tls=[{"hosts": ["a.test"], "secretName": "missing"}]), False),
    ],
)
def test_refusals_that_depend_on_the_ingress_alone_are_known(document: JsonObject, *, is_own: bool) -> None:
    """A Service, a Secret or another Ingress may come a moment later; the others wait for a change."""
    bound = only(document, annotations=BOTH)
    assert {failure.is_own for failure in bound.failures} == {is_own}
