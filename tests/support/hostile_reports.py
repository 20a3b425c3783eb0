"""Reports with names from anybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Snapshot
from locallb.planning.plan import make_plan
from locallb.report.assemble import assembled
from locallb.report.changes import Report
from locallb.report.sides import Side, planned_side
from tests.support.objects import node, service
from tests.support.reports import HOME, settings, snapshot

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs/preview-report.schema.json").read_text(encoding="utf-8")
)
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</style></script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onload='alert(1)",
    "]]><!-- -->",
    "a | b | c\n| d |",
    "`code` **bold** _it_ ~~gone~~",
    "[link](https://evil.example) ![i](//evil.example/x.png)",
    "https://evil.example www.evil.example",
    "@everyone #1 GH-1 !5 %3",
    "</details></summary><h1>x",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "\x9b31m\x08\x08\r\x00\x7f",
    "\u202eesrever\u2066\u2069\u200b\ufeff",
    "Z\u0335\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309" * 5,
    "很长的名字 ünïcödé 🦊 ﷽",
    "x" * 5000,
    "\ud800 lone",
    "{{ template }} ${{ github.token }} $(id) `id`",
    "\\[x\\] \\| &lt;b&gt; &#60;i&#62;",
]


def hostile_report() -> Report:
    """Make a report that has each text as a name, a namespace, a sentence, a label and a pool."""
    good = snapshot(node("worker", "127.0.0.1"), service("web"))
    side = planned_side("new", good, make_plan(good, settings()))
    web = next(iter(side.balancers.values()))
    balancers, rejections = dict(side.balancers), {}
    for number, text in enumerate(HOSTILE):
        key = ObjectKey(ClusterName(text), text, text)
        bad = replace(web, key=key, ports=tuple(replace(p, problem="NoBackends", message=text) for p in web.ports))
        balancers[key] = bad
        rejections[ObjectKey(ClusterName("c"), text, str(number))] = (Problem(Reason.IN_USE, f"{text} {text}"),)
    new = Side(HOSTILE[0], balancers, rejections, tuple(HOSTILE))
    report = assembled((Side(HOSTILE[6]), new), Snapshot(HOME), settings())
    return replace(report, stack=HOSTILE[0], settings=tuple(HOSTILE), complaints=tuple(HOSTILE))
