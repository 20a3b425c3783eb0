"""What the suite prints, read: how each test ended, and why. `failed_run.log` has lines of a run that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.results import MAX, Result, Run, end, lines, meanwhile, named, until_crash

FAILED = Path(__file__).with_name("failed_run.log").read_text()
TEST = "BackendTLSPolicy"
PART = (
    "TestConformance/BackendTLSPolicy/Changing_the_content_of_a_ConfigMap_used_by_BackendTLSPolicy_as_CA_certificate_"
    "should_be_reconciled_by_the_controller"
)
PRINTED = """=== RUN   TestConformance/HTTPRouteWeight
    helpers.go:821: 2026-11-22T23:17:35.123456789Z: Conditions matched expectations
--- FAIL: TestConformance (69.22s)
    --- PASS: TestConformance/HTTPRouteWeight (2.31s)
        --- PASS: TestConformance/HTTPRouteWeight/Requests_should_have_a_distribution (1.00s)
    --- FAIL: TestConformance/HTTPRouteCORS (30.00s)
        --- FAIL: TestConformance/HTTPRouteCORS/CORS_preflight (30.00s)
    --- FAIL: TestConformance/HTTPRouteCORSAndMore (30.00s)
    --- SKIP: TestConformance/MeshBasic (0.00s)
"""
PASSED = """--- PASS: TestConformance (69.22s)
    --- PASS: TestConformance/HTTPRouteCORS (2.31s)
    --- SKIP: TestConformance/MeshBasic (0.00s)
"""
WATCHED = """21:32:15.001 converged: 4 Services
21:32:17.397 planned in 25 ms because of source one: 2 to do
 | and more of it
21:32:29.382 converged: 4 Services
21:32:40.000 converged: 5 Services
"""


def test_each_test_is_reported_with_its_time() -> None:
    """Parts of tests aren't, nor those that the suite skips."""
    found = Run(1, PRINTED).results
    assert found == [
        Result("HTTPRouteWeight", "PASS", 2.31),
        Result("HTTPRouteCORS", "FAIL", 30.0),
        Result("HTTPRouteCORSAndMore", "FAIL", 30.0),
        Result("MeshBasic", "SKIP", 0.0),
    ]
    assert list(lines(found)) == [
        "PASS     2.3 s HTTPRouteWeight",
        "FAIL    30.0 s HTTPRouteCORS",
        "FAIL    30.0 s HTTPRouteCORSAndMore",
        "1 passed, 2 failed, 1 skipped by the suite",
    ]


def test_a_failed_test_is_printed_with_its_lines() -> None:
    """The suite looks again and again, and clears away: neither is told, nor what other parts of it said."""
    reported = [(line.partition("Z: ")[2] or line).split() for line in Run(1, FAILED).why(TEST)]
    assert [" ".join(terms[:3]) for terms in reported] == [
        "BackendTLSPolicy gateway-conformance-infra/reconcile-test (parentRef=0x2ccabadf1670/same-namespace)",
        "Creating tls-checks-ca-certificate-reconcile-test",
        "Accepted condition set",
        "Accepted was not",
        "backendtlspolicy.go:223:",
        "Error Trace: sigs.k8s.io/gateway-api/conformance@v1.6.3/utils/kubernetes/helpers.go:1647",
        "sigs.k8s.io/gateway-api/conformance@v1.6.3/tests/backendtlspolicy.go:223",
        "Error: Received unexpected",
        "error fetching BackendTLSPolicy",
        f"Test: {PART}",
        "Messages: error waiting",
    ]


def test_the_lines_of_the_watch_are_of_the_same_time() -> None:
    """From the first to the last line of the test, and what has a time."""
    assert list(meanwhile(list(Run(1, FAILED).why(TEST)), WATCHED)) == [
        "21:32:17.397 planned in 25 ms because of source one: 2 to do"
    ]
    assert list(meanwhile(["no time"], WATCHED)) == []


def test_of_a_long_log_the_end_is_printed() -> None:
    """With how much came before."""
    assert list(end(str(number) for number in range(MAX + 2))) == ["(2 lines before)", *map(str, range(2, MAX + 2))]
    assert list(end(["a" * 10_000])) == ["a" * 600]


def test_of_a_crash_the_thread_is_printed() -> None:
    """Of what the watch printed last there are all threads otherwise."""
    crash = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n  File a\n"
    assert list(until_crash(f"{WATCHED}{crash}\nThread 0x2 (most recent call first):\n  File b\n")) == [
        *WATCHED.splitlines(),
        *crash.splitlines(),
    ]
    assert list(until_crash(WATCHED)) == WATCHED.splitlines()


@pytest.mark.parametrize(
    ("run", "failure"),
    [
        (Run(1, PRINTED), ""),
        (Run(1, FAILED), ""),
        (Run(0, PASSED), ""),
        (Run(2, f"{PRINTED}panic: test timed out after 60m\n"), "it ended with exit code 2, and 2 tests failed"),
        (Run(-9, ""), "it ended with exit code -9, and 0 tests failed"),
        (Run(1, PASSED), "it ended with exit code 1, and 0 tests failed"),
        (Run(0, "PASS\n"), "it ran no test"),
        (Run(0, PASSED.replace("PASS:", "SKIP:")), "it ran no test"),
        (
            Run(1, f"=== NAME  TestConformance\n        Error Trace: a.go\n{PRINTED}"),
            "something failed outside its tests",
        ),
    ],
)
def test_a_run_without_a_verdict_says_why(run: Run, failure: str) -> None:
    """A panic, a setup that failed, nothing that ran."""
    assert run.failure == failure


@pytest.mark.parametrize(
    ("retry", "line"),
    [
        ([Run(0, PASSED)], "flaky"),
        ([Run(1, PRINTED)], "failed"),
        ([Run(2, "panic")], "failed"),
        ([Run(0, PASSED.replace("PASS:", "SKIP:"))], "failed"),
        ([], "failed"),
    ],
)
def test_what_fails_twice_has_failed(retry: list[Run], line: str) -> None:
    """As tests/tiers.sh has it; what passes when it is repeated is flaky."""
    first = Run(1, PASSED.replace("PASS:", "FAIL:"))
    assert list(named(first, [("HTTPRouteCORS", run) for run in retry])) == [
        f"{line}: tests/conformance::HTTPRouteCORS"
    ]


def test_nothing_is_named_where_nothing_failed() -> None:
    """Then nothing is repeated either."""
    assert list(named(Run(0, PASSED), [])) == []
