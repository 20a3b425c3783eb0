"""What the suite prints, read: each of its tests once, whatever their parts are."""

from __future__ import annotations

from tests.conformance.results import Result, lines, results

PRINTED = """=== RUN   TestConformance/HTTPRouteWeight
    helpers.go:821: 2026-11-22T23:17:35Z: Conditions matched expectations
--- FAIL: TestConformance (69.22s)
    --- PASS: TestConformance/HTTPRouteWeight (2.31s)
        --- PASS: TestConformance/HTTPRouteWeight/Requests_should_have_a_distribution (1.00s)
    --- FAIL: TestConformance/HTTPRouteCORS (30.00s)
        --- FAIL: TestConformance/HTTPRouteCORS/CORS_preflight (30.00s)
    --- SKIP: TestConformance/MeshBasic (0.00s)
"""


def test_each_test_is_reported_with_its_time() -> None:
    """Parts of tests aren't, nor those that the suite skips."""
    found = list(results(PRINTED))
    assert found == [
        Result("HTTPRouteWeight", "PASS", 2.31),
        Result("HTTPRouteCORS", "FAIL", 30.0),
        Result("MeshBasic", "SKIP", 0.0),
    ]
    assert list(lines(found)) == [
        "PASS     2.3 s HTTPRouteWeight",
        "FAIL    30.0 s HTTPRouteCORS",
        "1 passed, 1 failed, 1 skipped by the suite",
    ]
