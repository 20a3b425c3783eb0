"""The steps of host setup and teardown as tables: what is there, what was recorded, what would be done."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from msgspec.structs import replace

from locallb.host.setup_plan import (
    INSTANCES,
    LEDGER,
    PORT_START,
    SYSCTL_DIRECTORY,
    SYSCTL_FILE,
    UNIT_DIRECTORY,
    UNIT_FILE,
    UNIT_LINK,
    WANTS_DIRECTORY,
    describe_ledger,
    plan_setup,
    plan_teardown,
)
from locallb.host.setup_steps import PRESENT, ObservedHost, Retained, SetupRecord, StepKind
from locallb.model.reasons import Problem, Reason
from locallb.planning.pool_routes import PoolRoute

ROUTE = PoolRoute("far", ip_network("172.18.255.224/27"))
SYSTEMD = dict.fromkeys((SYSCTL_DIRECTORY, UNIT_DIRECTORY, WANTS_DIRECTORY), PRESENT)
FRESH = ObservedHost({PORT_START: 1024, INSTANCES: 128}, (ROUTE,), "", SYSTEMD, 7, "/sbin/ip")
DONE = ObservedHost(
    {PORT_START: 0, INSTANCES: 8192}, (replace(ROUTE, local=True),), describe_ledger(0o3775, 7), SYSTEMD, 7, "/sbin/ip"
)


def open_steps(observed: ObservedHost, *, persist: bool = False) -> dict[str, str]:
    return {step.what: step.wanted for step in plan_setup(observed, persist=persist).steps if not step.done}


def test_a_fresh_host_needs_everything_and_a_done_one_nothing() -> None:
    """The ledger carries its group."""
    assert open_steps(FRESH) == {
        PORT_START: "0",
        INSTANCES: "8192",
        LEDGER: "mode 3775 group 7",
        "172.18.255.224/27": "local",
    }
    assert open_steps(DONE) == {}


@pytest.mark.parametrize(
    ("sysctls", "wanted"),
    [
        ({PORT_START: 80, INSTANCES: 100_000}, {PORT_START: "0"}),
        ({PORT_START: 0, INSTANCES: 1024}, {INSTANCES: "8192"}),
        ({INSTANCES: 8192}, {}),
        ({}, {}),
    ],
)
def test_setup_never_lowers_limits_and_skips_unknown_ones(sysctls: dict[str, int], wanted: dict[str, str]) -> None:
    """A limit is never lowered."""
    assert open_steps(replace(DONE, sysctls=sysctls)) == wanted


def test_a_route_that_may_not_be_is_a_problem_and_no_step() -> None:
    """And a note stays a note."""
    problem = Problem(Reason.POOL_OVERLAPS, "no")
    plan = plan_setup(replace(FRESH, routes=(replace(ROUTE, problem=problem),)), persist=False)
    assert plan.problems == (problem,)
    assert StepKind.ROUTE not in {step.sort for step in plan.steps}
    assert plan_setup(replace(FRESH, routes=(replace(ROUTE, note="mind"),)), persist=False).notes == ("mind",)


def test_files_for_the_next_boot_are_made_on_request_only() -> None:
    """Only what is missing: directories too, and no unit where there is no systemd or no route."""
    assert not {SYSCTL_FILE, UNIT_FILE, UNIT_LINK} & set(open_steps(FRESH))
    assert {SYSCTL_FILE, UNIT_FILE, UNIT_LINK} <= set(open_steps(FRESH, persist=True))
    bare = replace(FRESH, texts={})
    assert {SYSCTL_DIRECTORY, SYSCTL_FILE} <= set(open_steps(bare, persist=True))
    assert UNIT_FILE not in open_steps(bare, persist=True)
    assert any("at every boot" in note for note in plan_setup(bare, persist=True).notes)
    assert UNIT_FILE not in open_steps(replace(FRESH, routes=()), persist=True)
    assert any("iproute2" in note for note in plan_setup(replace(FRESH, ip_command=""), persist=True).notes)


def test_a_status_tells_what_was_never_asked_for_from_what_is_missing() -> None:
    """Files for the next boot are optional until `--persist` made one of them; then what lacks is missing."""

    def states(observed: ObservedHost) -> dict[str, bool]:
        return {
            step.what: step.optional for step in plan_setup(observed, persist=False, status=True).steps if not step.done
        }

    assert states(DONE) == {SYSCTL_FILE: True}
    assert states(FRESH) | {SYSCTL_FILE: True, UNIT_FILE: True, UNIT_LINK: True} == states(FRESH)
    assert not any(states(FRESH)[what] for what in (PORT_START, INSTANCES, LEDGER, "172.18.255.224/27"))
    lasting = SetupRecord({(StepKind.FILE, SYSCTL_FILE): Retained("", "text")})
    assert states(replace(DONE, record=lasting)) == {SYSCTL_FILE: False}
    assert not plan_setup(replace(FRESH, texts={}), persist=False, status=True).notes


def test_a_route_of_another_owner_isnt_made_at_boot_but_our_own_is() -> None:
    """Ours is known by the record."""
    local = replace(FRESH, routes=(replace(ROUTE, local=True),))
    assert UNIT_FILE not in open_steps(local, persist=True)
    ours = SetupRecord({(StepKind.ROUTE, "172.18.255.224/27"): Retained("", "local")})
    assert UNIT_FILE in open_steps(replace(local, record=ours), persist=True)
    both = open_steps(
        replace(FRESH, record=SetupRecord({(StepKind.ROUTE, "10.9.0.0/24"): Retained("", "local")})), persist=True
    )
    assert all(f"replace local {prefix} dev lo" in both[UNIT_FILE] for prefix in ("10.9.0.0/24", "172.18.255.224/27"))


SYSCTL_KEY, LEDGER_KEY = (StepKind.SYSCTL, PORT_START), (StepKind.LEDGER, LEDGER)


@pytest.mark.parametrize(
    ("retained", "now", "claims", "undone", "reported"),
    [
        ({SYSCTL_KEY: Retained("1024", "0")}, {SYSCTL_KEY: "0"}, 0, {PORT_START: "1024"}, ""),
        ({SYSCTL_KEY: Retained("1024", "0")}, {SYSCTL_KEY: "1024"}, 0, {PORT_START: "1024"}, ""),
        ({SYSCTL_KEY: Retained("1024", "0")}, {SYSCTL_KEY: "80"}, 0, {}, "stays 80"),
        ({LEDGER_KEY: Retained("", "m")}, {LEDGER_KEY: "m"}, 0, {LEDGER: ""}, ""),
        ({LEDGER_KEY: Retained("", "m")}, {LEDGER_KEY: "m"}, 3, {}, "3 addresses are claimed"),
        ({LEDGER_KEY: Retained("old", "m")}, {LEDGER_KEY: "m"}, 3, {LEDGER: "old"}, ""),
        ({LEDGER_KEY: Retained("", "m")}, {}, 0, {LEDGER: ""}, ""),
        ({}, {}, 0, {}, ""),
    ],
)
def test_teardown_brings_back_what_was_found_and_leaves_what_others_changed(
    retained: dict[tuple[StepKind, str], Retained],
    now: dict[tuple[StepKind, str], str],
    claims: int,
    undone: dict[str, str],
    reported: str,
) -> None:
    """What is as it was found already is only forgotten."""
    plan = plan_teardown(SetupRecord(retained), now, claims)
    assert {step.what: step.wanted for step in plan.steps} == undone
    assert reported in " ".join(plan.notes)
    assert bool(plan.notes) is bool(reported)


def test_teardown_goes_backwards() -> None:
    """The last change is undone first."""
    changes = {(StepKind.ROUTE, f"10.0.{n}.0/24"): Retained("", "local") for n in range(3)}
    plan = plan_teardown(SetupRecord(changes), dict.fromkeys(changes, "local"), 0)
    assert [step.what for step in plan.steps] == ["10.0.2.0/24", "10.0.1.0/24", "10.0.0.0/24"]
