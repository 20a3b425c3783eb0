"""The command `doctor`: one screen about this host and this stack; its exit code is 1 where something doesn't work."""

from __future__ import annotations

import json

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.host.examine import inspect
from locallb.host.doctor import examine
from locallb.host.headroom import headroom
from locallb.host.observation import Finding, Level

STYLES = {Level.OK: "green", Level.NOTE: "", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def doctor(args: Arguments, out: Out) -> int:
    """Examine the host and the stack, and print the findings."""
    observed = inspect(args.directory, args.stack)
    findings = examine(observed)
    healthy = not any(finding.level is Level.PROBLEM for finding in findings)
    if args.json:
        room = headroom(observed.limits)
        document = {
            "healthy": healthy,
            "headroom": {"proxies": room.proxies, "limited_by": room.limited_by},
            "findings": [_fields(finding) for finding in findings],
        }
        out.raw(json.dumps(document, indent=2))
    else:
        _print(findings, out)
    return Exit.OK if healthy else Exit.FAILED


def _print(findings: tuple[Finding, ...], out: Out) -> None:
    for finding in findings:
        out.line((f"{finding.level:<8} ", STYLES[finding.level]), (f"{finding.topic:<9} ", "bold"), finding.text)
        if finding.remedy:
            out.line(f"{'':19}→ {finding.remedy}")


def _fields(finding: Finding) -> dict[str, str]:
    return {"level": str(finding.level), "topic": finding.topic, "text": finding.text, "remedy": finding.remedy}
