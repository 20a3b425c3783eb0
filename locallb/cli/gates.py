"""The exit codes of a stack's policies, and how commands say what these forbid.

Not here: what is forbidden (`report.policies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from locallb.cli.console import Out
from locallb.cli.failures import Exit

if TYPE_CHECKING:
    from locallb.report.changes import Violation

GATES = {
    "addressChanges": Exit.ADDRESS_CHANGES,
    "sourceRanges": Exit.SOURCE_RANGES,
    "ports": Exit.PORTS,
    "headroom": Exit.HEADROOM,
    "hostnames": Exit.HOSTNAMES,
    "tls": Exit.TLS,
}
"""Exit codes; of several the first counts."""


def refuse(violations: Sequence[Violation], out: Out) -> int:
    """Print what the stack's policies forbid or advise against, and give the exit code."""
    if violations:
        from locallb.report.wording import visible  # noqa: PLC0415 - few stacks have any
    for violation in violations:
        (out.warning if violation.advisory else out.error)(visible(violation.message))
    return gate_code(violations)


def gate_code(violations: Iterable[Violation]) -> int:
    """Return the exit code for what policies forbid."""
    broken = {violation.gate for violation in violations if not violation.advisory}
    return next((code for gate, code in GATES.items() if gate in broken), Exit.OK)
