"""What anybody may write into objects of Gateway API, usual and odd, for properties of all that is made of them."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.backend_tls import KEY, OTHER_PEM, PEM, REF, policy
from tests.support.certificates import changed
from tests.support.gateway_objects import JsonObject, backend, listener, parent, route, rule

_usual_names = st.sampled_from(["", "a.test", "A.test", "*.test", "*.a.test", "b.a.test"])
_hostnames = _usual_names | st.sampled_from(["*", "xn--a.test", "1.2.3.4", "a..test", "-.test", "te st"])
_texts = st.sampled_from(["v", "%REQ(host)%", "100 %", "a\r\nb: c", '"', "{}", "\u00fc", "", "x" * 3000, "%", "%%"])
_header_names = st.sampled_from(["x-a", "X-A", "host", ":path", "connection", "a b", "x-envoy-retry-on", "", "te"])
_headers = st.lists(st.fixed_dictionaries({"name": _header_names, "value": _texts}), max_size=2)
_expressions = st.sampled_from(
    ["/v[0-9]+", "[a-z_-\\d]", "(a{1000}){1000}", "(", "(?=a)", ".*", "\\C", "[[:alpha:]]+", "(?i)x", "a**"]
)
_paths = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Exact", "PathPrefix"]),
            "value": st.sampled_from(
                ["/", "/v1", "/v1/", "/a b", "//", "/%2f", "/../x", "", "/\u00fc", "/a?b", "/a#b"]
            ),
        }
    ),
    st.fixed_dictionaries({"type": st.just("RegularExpression"), "value": _expressions}),
)
_values = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["Exact", "RegularExpression"]), "name": _header_names, "value": _texts | _expressions}
    ),
    max_size=2,
)
_matches = st.fixed_dictionaries(
    {},
    optional={
        "path": _paths,
        "headers": _values,
        "queryParams": _values,
        "method": st.sampled_from(["GET", "PATCH", "BREW"]),
    },
)
_changes = st.fixed_dictionaries({}, optional={"set": _headers, "add": _headers, "remove": st.lists(_header_names)})
_new_paths = st.one_of(
    st.fixed_dictionaries({"type": st.just("ReplaceFullPath"), "replaceFullPath": _texts | st.just("/new")}),
    st.fixed_dictionaries({"type": st.just("ReplacePrefixMatch"), "replacePrefixMatch": _texts | st.just("/")}),
)
_filters = st.one_of(
    st.builds(lambda it: {"type": "RequestHeaderModifier", "requestHeaderModifier": it}, _changes),
    st.builds(lambda it: {"type": "ResponseHeaderModifier", "responseHeaderModifier": it}, _changes),
    st.builds(
        lambda host, path: {"type": "URLRewrite", "urlRewrite": {"hostname": host, "path": path}},
        _hostnames,
        _new_paths,
    ),
    st.builds(
        lambda host, path: {"type": "RequestRedirect", "requestRedirect": {"hostname": host, "path": path}},
        _hostnames,
        _new_paths,
    ),
    st.builds(
        lambda origins, age: {"type": "CORS", "cors": {"allowOrigins": origins, "maxAge": age}},
        st.lists(st.sampled_from(["*", "https://a.test", "https://*.test", "javascript:", "null"]), max_size=2),
        st.sampled_from([0, 5, 2**31 - 1]),
    ),
    st.builds(
        lambda percent: {"type": "RequestMirror", "requestMirror": {"backendRef": backend(), "percent": percent}},
        st.sampled_from([0, 50, 100, 101]),
    ),
)
_backends = st.lists(
    st.sampled_from([backend(), backend(weight=0), backend("missing"), backend("secure"), backend("api", port=1)]),
    max_size=3,
)
_sessions = st.sampled_from([{}, {"type": "Header", "sessionName": "x-s"}, {"sessionName": "a b"}, {"type": "Cookie"}])
_http_rules = st.fixed_dictionaries(
    {"matches": st.lists(_matches, max_size=3), "backendRefs": _backends},
    optional={
        "filters": st.lists(_filters, max_size=2),
        "timeouts": st.sampled_from([{"request": "0s"}, {"request": "1s", "backendRequest": "500ms"}]),
        "retry": st.sampled_from([{"attempts": 3}, {"codes": [500, 503], "backoff": "10ms"}]),
        "sessionPersistence": _sessions,
    },
)
_usual_matches = st.fixed_dictionaries(
    {"path": st.sampled_from([{"value": "/v1"}, {"value": "/"}, {"type": "Exact", "value": "/x"}])},
    optional={
        "headers": st.just([{"name": "x-a", "value": "%REQ(host)%"}]),
        "queryParams": st.just([{"type": "RegularExpression", "name": "q", "value": "[a-z]+"}]),
        "method": st.just("GET"),
    },
)
_set = {"set": [{"name": "x-b", "value": "100 % %REQ(host)%"}], "remove": ["x-c"]}
_usual_filters = st.sampled_from(
    [
        {"type": "RequestHeaderModifier", "requestHeaderModifier": _set},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": _set},
        {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/n"}}},
        {"type": "CORS", "cors": {"allowOrigins": ["https://*.test"], "allowHeaders": ["*"], "maxAge": 5}},
        {"type": "RequestMirror", "requestMirror": {"backendRef": backend("secure"), "percent": 50}},
    ]
)
_usual_backends = st.just([backend("secure")]) | st.just([backend(), backend("secure", weight=3)]) | _backends
_usual_rules = st.fixed_dictionaries(
    {"matches": st.lists(_usual_matches, min_size=1, max_size=3, unique_by=str), "backendRefs": _usual_backends},
    optional={
        "filters": st.lists(_usual_filters, max_size=3, unique_by=str),
        "timeouts": st.just({"request": "1s", "backendRequest": "500ms"}),
        "retry": st.just({"attempts": 3, "codes": [503], "backoff": "10ms"}),
        "sessionPersistence": st.just({"type": "Header", "sessionName": "x-s"}),
    },
)
_kinds = st.sampled_from([*["HTTPRoute"] * 5, "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"])


@st.composite
def routes(draw: st.DrawFn) -> JsonObject:
    kind = draw(_kinds)
    rules = (
        draw(st.lists(_usual_rules | _http_rules, min_size=1, max_size=3))
        if kind == "HTTPRoute"
        else [rule(backends=[backend()])]
    )
    plain = [one if kind == "HTTPRoute" else {"backendRefs": draw(_backends)} for one in rules]
    names_it = kind not in {"TCPRoute", "UDPRoute"}
    named: JsonObject = (
        {
            "hostnames": draw(
                st.lists(draw(st.sampled_from([_usual_names, _usual_names, _hostnames])), max_size=3, unique=True)
            )
        }
        if names_it
        else {}
    )
    name = f"r{draw(st.integers(0, 3))}"
    return route(*plain, name=name, kind=kind, parentRefs=[parent()], **named)


_tls = st.sampled_from(
    [
        *[{"certificateRefs": [{"name": "cert"}]}] * 4,
        {"certificateRefs": [{"name": "none"}]},
        {"mode": "Passthrough"},
        None,
    ]
)


_PORTS = {"HTTP": 8080, "HTTPS": 8443, "TLS": 8443}
_PROTOCOLS = ("HTTP", "HTTP", "HTTPS", "HTTPS", "TLS", "TCP", "UDP")


@st.composite
def listeners(draw: st.DrawFn) -> list[JsonObject]:
    """Write the listeners of a Gateway, two plain ones among them."""
    made = [listener("any", 8081), listener("tls", 8445, "HTTPS", tls={"certificateRefs": [{"name": "cert"}]})]
    for number in range(draw(st.integers(0, 4))):
        protocol = draw(st.sampled_from(_PROTOCOLS))
        port = draw(st.sampled_from([_PORTS.get(protocol, 8082), 8444]))
        tls = draw(_tls) if protocol in {"HTTPS", "TLS"} else None
        named = {"hostname": draw(_usual_names | _hostnames)} if protocol in {"HTTP", "HTTPS", "TLS"} else {}
        made.append(listener(f"l{number}", port, protocol, **named, **({"tls": tls} if tls else {})))
    return made


_MORE = {**REF, "name": "more"}
_names = st.lists(
    st.one_of(
        st.builds(lambda name: {"type": "Hostname", "hostname": name}, _hostnames),
        st.builds(lambda text: {"type": "URI", "uri": text}, _texts | st.just("spiffe://a.test/b")),
    ),
    max_size=2,
)
policies = st.just(policy(target={"name": "secure"})) | st.builds(
    policy,
    target=st.just({"name": "secure"}),
    hostname=st.just("a.test") | _hostnames,
    caCertificateRefs=st.lists(
        st.sampled_from([REF, REF, {**REF, "name": "more"}, {**REF, "name": "gone"}]), max_size=2
    ),
    wellKnownCACertificates=st.sampled_from([None, None, "System"]),
    subjectAltNames=_names,
)
bundles = st.one_of(
    st.just(PEM),
    st.sampled_from([PEM + OTHER_PEM, f"{PEM}{PEM}", f"text {PEM}", "", PEM[:-9], PEM + KEY]),
    st.builds(changed, st.just(PEM), st.tuples(st.integers(0, 4096), st.integers(0, 255))),
)


_REMOVED = {**REF, "name": "gone"}
_requested = st.builds(
    lambda refs, mode: {"validation": {"caCertificateRefs": refs, **mode}},
    st.sampled_from([[REF], [_MORE], [REF, _MORE], [_REMOVED, REF, REF], [_REMOVED], []]),
    st.sampled_from([{}, {"mode": "AllowValidOnly"}, {"mode": "AllowInsecureFallback"}, {"mode": "Maybe"}]),
)
_frontends = st.fixed_dictionaries(
    {"default": _requested | st.just({})},
    optional={"perPort": st.lists(st.builds(lambda tls: {"port": 8445, "tls": tls}, _requested), max_size=1)},
)
_shown = st.sampled_from([{"clientCertificateRef": {"name": name}} for name in ("cert", "cert", "gone")])
tls_of_gateways = st.one_of(
    st.just({}),
    st.builds(lambda shown: {"backend": shown}, _shown),
    st.builds(lambda requested: {"frontend": requested}, _frontends),
    st.builds(lambda requested, shown: {"frontend": requested, "backend": shown}, _frontends, _shown),
)
