"""The choice of Services by labels, state and name, and their documents in kubectl's forms."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from locallb.cli.arguments import parse
from locallb.cli.failures import Refused
from locallb.cli.selection import chosen_rows, in_form
from locallb.cli.targets import TargetError, is_chosen, is_named, matching, selected, settled
from locallb.model.identities import ClusterName, ObjectKey, ObjectKind
from locallb.planning.service_rows import Row, State

WEB, API = (ObjectKey(ClusterName("c"), "shop", name) for name in ("web", "api"))
OTHER = ObjectKey(ClusterName("c"), "other", "web")
ROWS = (Row(WEB, State.SERVING), Row(API, State.REJECTED), Row(OTHER, State.SERVING))
LABELS = {WEB: {"app": "web", "env": "dev"}, API: {"app": "api", "beta": ""}, OTHER: {"app": "web", "env": "live"}}


@pytest.mark.parametrize(
    ("terms", "found"),
    [
        ([], [WEB, API, OTHER]),
        (["-A"], [WEB, API, OTHER]),
        (["-n", "shop"], [WEB, API]),
        (["--state", "rejected"], [API]),
        (["--state", "rejected", "--state", "serving", "-n", "other"], [OTHER]),
        (["-l", "app=web"], [WEB, OTHER]),
        (["-l", "app==web,env!=live"], [WEB]),
        (["-l", "env!=live"], [WEB, API]),
        (["-l", "env in (dev, test)"], [WEB]),
        (["-l", "env notin (dev,test),app"], [API, OTHER]),
        (["-l", "!beta"], [WEB, OTHER]),
        (["-l", "beta"], [API]),
    ],
)
def test_services_are_chosen_as_kubectl_chooses(terms: list[str], found: list[ObjectKey]) -> None:
    """By namespace, labels and state, and by all of these together."""
    assert [row.key for row in chosen_rows(ROWS, LABELS, parse(["get", *terms]))] == found


@pytest.mark.parametrize("text", ["=", "a=b=c", "a in (b", "!a=b", "a,,b", "a b"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    """With the text and an example."""
    with pytest.raises(Refused, match="isn't a selector of labels; write such as app=web"):
        chosen_rows(ROWS, LABELS, parse(["get", "-l", text]))


DOCUMENTS: list[Mapping[str, object]] = [
    {"name": "web", "addresses": ["127.0.0.1", "::1"], "ports": [{"port": 80}]},
    {"name": "api", "ports": []},
]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.items[*].name}", "web api"),
        ("{.items[0].addresses[-1]}", "::1"),
        ("{.items[7].name}{.items[1].addresses[0]}", ""),
        ("{$.items[*]['name']}", "web api"),
        ('{range .items[*]}{.name}{"\\t"}{.ports[*].port}{"\\n"}{end}', "web\t80\napi\t\n"),
        ("{range .items[*]}{range .addresses[*]}<{@}>{end};{end}", "<127.0.0.1><::1>;;"),
        ("{.items[0].ports[0]}", '{"port": 80}'),
        ("at {.items[0].name}", "at web"),
    ],
)
def test_a_jsonpath_finds_what_kubectl_finds(template: str, text: str) -> None:
    """What isn't there is nothing."""
    assert in_form(DOCUMENTS, f"jsonpath={template}") == text


@pytest.mark.parametrize("template", ["{.items", "{range .items[*]}x", "{.a[?(@.b)]}", "{end}}", "{.items[*].name]}"])
def test_what_is_no_jsonpath_is_refused(template: str) -> None:
    """In a sentence with the template and an example."""
    with pytest.raises(Refused, match="jsonpath="):
        in_form(DOCUMENTS, f"jsonpath={template}")


def test_one_that_is_named_alone_is_no_list() -> None:
    assert in_form(DOCUMENTS[:1], "jsonpath={.addresses[0]}", alone=True) == "127.0.0.1"
    assert in_form(DOCUMENTS[1:], "yaml", alone=True) == "name: api\nports: []\n"


def test_yaml_has_what_json_has() -> None:
    """Field by field, in the same order."""
    assert in_form(DOCUMENTS[1:], "yaml") == "- name: api\n  ports: []\n"


NAMES = [str(key) for key in (WEB, API, OTHER, WEB._replace(name="web-2"))]
CLASS = str(ObjectKey(ClusterName("c"), "", "local-lb", ObjectKind.INGRESS_CLASS))


def test_names_are_given_whole_by_their_end_by_their_beginning_or_as_a_glob() -> None:
    """What is exact comes first; several that begin alike are listed, and a glob means all that it matches."""
    assert matching("shop/web", NAMES) == "c/shop/web"
    assert matching("ap", NAMES) == matching("c/shop/a", NAMES) == "c/shop/api"
    assert selected(["shop/w*", "web-2"], NAMES) == ("c/shop/web", "c/shop/web-2")
    assert matching("c/ingressclasses/local-lb", [CLASS]) == matching("local", [CLASS]) == CLASS
    for target, complaint in (("web", "'web' may be several.*c/shop/web, c/other/web$"), ("x*", "no load balancer 'x")):
        with pytest.raises(TargetError, match=complaint):
            selected([target], NAMES)
    assert is_named("c/shop/web", "we")
    assert not is_named("c/shop/web", "eb")


def test_names_are_settled_once_for_what_goes_on() -> None:
    """Then a name means its Service alone, also once others begin so; a glob means those too that come later."""
    assert settled([], NAMES) == ()
    assert settled(["shop/web", "ap", "web-?"], NAMES) == ("c/shop/web", "c/shop/api", "web-?")
    for target, complaint in (("web", "'web' may be several"), ("x*", "no load balancer 'x"), ("x", "'x'; name one")):
        with pytest.raises(TargetError, match=complaint):
            settled([target], NAMES)
    later = [*NAMES, "c/shop/web-3", "c/shop/api-2"]
    assert [name for name in later if is_chosen(name, settled(["ap", "web-?"], NAMES))] == [
        "c/shop/api",
        "c/shop/web-2",
        "c/shop/web-3",
    ]
    assert all(is_chosen(name, ()) for name in later)


def test_former_spellings_work_and_say_the_present_one(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, where scripts don't read it."""
    assert parse(["fault", "--end"]) == parse(["fault", "--undo"])
    assert capsys.readouterr() == ("", "note: --end is called --undo now\n")
    assert parse(["describe", "web"]) == parse(["status", "web"])
    assert parse(["describe"]).services == ("*",)
