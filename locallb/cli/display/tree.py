"""A run's steps as a tree, like Pulumi's own: what happens to each resource, and which of its properties change."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from locallb.cli.console import Out
from locallb.engine.core.events import Op, Result, StepRecord
from locallb.engine.state.values import PropertyChange

SIGNS = {
    Op.SAME: (" ", ""),
    Op.READ: (" ", ""),
    Op.REFRESH: (" ", ""),
    Op.CREATE: ("+", "green"),
    Op.UPDATE: ("~", "yellow"),
    Op.DELETE: ("-", "red"),
    Op.REPLACE: ("+-", "magenta"),
    Op.CREATE_REPLACEMENT: ("++", "green"),
    Op.DELETE_REPLACED: ("--", "red"),
}
QUIET = frozenset({Op.SAME, Op.READ, Op.REFRESH, Op.CREATE_REPLACEMENT, Op.DELETE_REPLACED})
DONE = {Op.CREATE: "created", Op.UPDATE: "updated", Op.DELETE: "deleted", Op.REPLACE: "replaced"}
DERIVED = frozenset({"digest", "version_info", "versions.cds", "versions.lds"})
"""Ends of the paths of properties that follow from others: shown only where nothing else changes."""
MAX_CHANGES = 12
MAX_CHARACTERS = 160


def print_steps(out: Out, result: Result, *, planned: bool) -> None:
    """Print the resources that change, each below its parent, and the count of all."""
    loud = {step.subject.urn: step for step in result.steps if step.op not in QUIET}
    everything = {step.subject.urn: step for step in result.steps}
    shown = _with_ancestors(loud, everything)
    children: dict[str, list[StepRecord]] = defaultdict(list)
    for step in shown.values():
        children[step.subject.parent if step.subject.parent in shown else ""].append(step)
    for root in children[""]:
        _print_branch(out, root, children, "", "")
    print_counts(out, result, planned=planned)


def print_counts(out: Out, result: Result, *, planned: bool) -> None:
    """Print how many resources changed, and how long it took."""
    if result.ok and result.unchanged:
        out.line("Nothing to change." if planned else "Nothing changed.")
    failed, same = sum(step.failed for step in result.steps), result.changes.get(Op.SAME, 0)
    if failed or any(result.changes.values()):
        out.line(("Resources:", "bold"))
    for op, word in DONE.items():
        if count := result.changes.get(op, 0):
            sign, style = SIGNS[op]
            out.line("    ", (sign, style), f" {count} {'to ' + op.value if planned else word}")
    if failed:
        out.line("    ", ("x", "red"), f" {failed} failed")
    if same:
        out.line(f"    {same} unchanged")
    if not planned:
        out.line(("Duration:", "bold"), f" {result.duration:.2f}s")


def _with_ancestors(loud: Mapping[str, StepRecord], steps: Mapping[str, StepRecord]) -> Mapping[str, StepRecord]:
    wanted = set(loud)
    for step in loud.values():
        parent = step.subject.parent
        while parent in steps and parent not in wanted:
            wanted.add(parent)
            parent = steps[parent].subject.parent
    return {urn: loud.get(urn, step) for urn, step in steps.items() if urn in wanted}


def _print_branch(
    out: Out, step: StepRecord, children: Mapping[str, Sequence[StepRecord]], lead: str, below: str
) -> None:
    sign, style = SIGNS[step.op]
    what = f"  {step.op.value}" if step.op not in QUIET else ""
    failed = ("  failed", "bold red") if step.failed else ""
    kind = step.subject.type.rpartition(":")[2]
    out.line((f" {sign:<2} ", style), (lead, "dim"), kind, " ", (step.subject.name, "bold"), (what, style), failed)
    if step.op in {Op.UPDATE, Op.REPLACE}:
        _print_changes(out, step.changes, below)
    below_here = sorted(children.get(step.subject.urn, ()), key=lambda s: (s.subject.name, s.subject.type))
    for number, child in enumerate(below_here, 1):
        last = number == len(below_here)
        _print_branch(out, child, children, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))


def _print_changes(out: Out, changes: Sequence[PropertyChange], below: str) -> None:
    lines = list(_differences(changes))
    lines = [line for line in lines if not line[0].endswith(tuple(DERIVED))] or lines
    for path, old, new in lines[:MAX_CHANGES]:
        out.line("    ", (below, "dim"), f"     {path}: ", (old, "red"), " => ", (new, "green"))
    if len(lines) > MAX_CHANGES:
        out.line("    ", (below, "dim"), f"     and {len(lines) - MAX_CHANGES} more")


def _differences(changes: Sequence[PropertyChange]) -> Iterator[tuple[str, str, str]]:
    """Return the changes as words; text that is JSON is compared as JSON."""
    for change in changes:
        old, new = _parsed(change.old), _parsed(change.new)
        yield from _leaves(change.path, old, new)


def _leaves(path: str, old: object, new: object) -> Iterator[tuple[str, str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                yield from _leaves(f"{path}.{key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            before = old[index] if index < len(old) else None
            after = new[index] if index < len(new) else None
            if before != after:
                yield from _leaves(f"{path}[{index}]", before, after)
    else:
        yield path, _terms(old), _terms(new)


def _parsed(value: object) -> object:
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _terms(value: object) -> str:
    if value is None:
        return "(none)"
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict | list) and len(text) > MAX_CHARACTERS:
        return f"({len(text)} characters)"
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
