"""Turns results into what docs/benchmarks.md shows: tables between its markers, and plots beside it.

    python -m benchmarks.report

reads benchmarks/results/*.json, as `make bench` writes them. Plots are SVG by hand: bars for medians with a line from
minimum to maximum. Not here: measuring.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "benchmarks" / "results"
DOCS = CHECKOUT / "docs"
PAGE = DOCS / "benchmarks.md"
PLOTS = DOCS / "benchmarks"
BEGIN, END = "<!-- {} begins: written by `python -m benchmarks.report` -->", "<!-- {} ends -->"
WIDTH, BAR, LEFT, RIGHT, TOP = 760, 22, 190, 90, 44
COLOURS = ("#4063d8", "#389826", "#9558b2", "#cb3c33", "#7f7f7f", "#b8860b")
MS = ("milliseconds", "ms")
DRAWN = (
    ("created", "watch", "Service created: first byte", *MS),
    ("port-added", "watch", "port added: serves", *MS),
    ("ten-at-once", "watch", "10 Services at once: all serve", *MS),
    ("killed", "watch", "proxy killed: serves again", *MS),
    ("created-real", "real", "Service created: first byte", *MS),
    ("port-added-real", "real", "port added: serves", *MS),
    ("event-nothing", "scale", "event that changes nothing", *MS),
    ("event-one", "scale", "event that changes one Service", *MS),
    ("throughput", "throughput", "requests/s", "figures", "/s"),
)
"""Plots: the file, the benchmark, the measure, where its result has it, the unit."""
Result = Mapping[str, Any]
Spreads = Mapping[str, Mapping[str, Mapping[str, float]]]


def number(value: float) -> str:
    """Write a number as short as its size allows."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def rows(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    every = [head, ["---"] + ["--:"] * (len(head) - 1), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in every)


def by_measure(figures: Spreads) -> str:
    """Write medians with minimum and maximum: a line for each measure, a column for each that was measured."""
    measures = list(dict.fromkeys(what for measured in figures.values() for what in measured))
    lines = []
    for what in measures:
        cells = [measured.get(what) for measured in figures.values()]
        reported = [
            f"{number(cell['p50'])} ({number(cell['min'])}-{number(cell['max'])})" if cell else "" for cell in cells
        ]
        lines.append([what, *reported])
    return rows(["p50 (min-max)", *figures], lines)


def counted(figures: Mapping[str, Mapping[str, float]]) -> str:
    measures = list(dict.fromkeys(what for measured in figures.values() for what in measured))
    lines = [
        [what, *(number(measured[what]) if what in measured else "" for measured in figures.values())]
        for what in measures
    ]
    return rows(["", *figures], lines)


def measured_on(result: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items() if version)
    load = result["load"][0]
    notes = "".join(f" {note[:1].upper()}{note[1:]}." for note in result["notes"])
    return f"{result['date'][:10]}, {result['machine']}, {result['cores']} cores, load {load:g} ({versions}).{notes}"


def tables(result: Result) -> str:
    """Write all that one result has."""
    parts = [measured_on(result)]
    if spreads := result.get("milliseconds") or result.get("figures"):
        parts.append(by_measure(spreads))
    parts.extend(counted(result[name]) for name in ("counts", "sizes", "ratios") if result.get(name))
    if any((result.get("never") or {}).values()):
        parts.append("Didn't come true within the patience, times:\n\n" + counted(result["never"]))
    return "\n\n".join(parts)


def plot(title: str, figures: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """Draw a bar for each median, from nothing to the most, so that lengths compare as the figures do."""
    maximum = max(measured["max"] for measured in figures.values())

    def at(value: float) -> float:
        return LEFT + value / maximum * (WIDTH - LEFT - RIGHT)

    height = TOP + BAR * len(figures) + 14
    style = 'font-family="sans-serif" font-size="12"'
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {style}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="22" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for place, (name, measured) in enumerate(figures.items()):
        top = TOP + BAR * place
        middle, colour = top + BAR / 2 - 2, COLOURS[place % len(COLOURS)]
        drawn += [
            f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{at(measured["p50"]) - LEFT:.1f}" height="{BAR - 6}" fill="{colour}"/>',
            f'<path d="M{at(measured["min"]):.1f} {middle}H{at(measured["max"]):.1f}" stroke="#222222"/>',
            f'<text x="{at(measured["max"]) + 6:.1f}" y="{middle + 4}">{number(measured["p50"])} {escape(unit)}</text>',
        ]
    return "\n".join([*drawn, "</svg>", ""])


def across(result: Result, what: str, key: str) -> Mapping[str, Mapping[str, float]]:
    """Take one measure of everybody who has it."""
    return {name: figures[what] for name, figures in result[key].items() if what in figures}


def plots(name: str, result: Result) -> Mapping[str, str]:
    """Draw the plots of a benchmark, by the name of their file."""
    drawn = {}
    for file, benchmark, what, key, unit in DRAWN:
        if benchmark == name and (figures := across(result, what, key)):
            drawn[f"{file}.svg"] = plot(what, figures, unit)
    return drawn


def filled(page: str, name: str, text: str) -> str:
    """Put a text between the markers of that name, if the page has them."""
    begin, end = BEGIN.format(name), END.format(name)
    if begin not in page or end not in page:
        return page
    before, rest = page.split(begin, 1)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}"


def main() -> None:
    page = PAGE.read_text()
    PLOTS.mkdir(exist_ok=True)
    for name in ("watch", "real", "cluster", "scale", "throughput", "docker", "proxy", "gateways_live"):
        path = RESULTS / f"{name}.json"
        if path.exists():
            result: Result = json.loads(path.read_text())
            drawn = plots(name, result)
            for file, text in drawn.items():
                (PLOTS / file).write_text(text)
            images = "".join(f"\n\n![{file.removesuffix('.svg')}](benchmarks/{file})" for file in drawn)
            page = filled(page, name, tables(result) + images)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
