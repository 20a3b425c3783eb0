"""What the core does with failures, hanging parties, stops, state files and what can't be desired."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pulumi.provider.experimental.provider import DiffRequest, DiffResponse

from locallb.engine.state.checkpoint import parse_checkpoint
from locallb.engine.state.errors import EngineError
from locallb.model.desired import DesiredResource as Resource
from locallb.model.desired import Group, OptionalRef, Ref, ResourceKey
from locallb.model.identities import Digest
from tests.engine.core.support import SimulatedExecutor, bring, core_of, groups_of, node_key, retry, root_key
from tests.engine.graphs import BookKeeper, Graph, Node, Site, declare

TWO: Graph = (Node(0, 0), Node(1, 1, uses=(0,)), Node(3, 2))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path / "p")
    site.project()
    return site


def _group(members: tuple[Resource, ...]) -> Group:
    return Group(members, Digest(""))


def begun(executor: SimulatedExecutor) -> list[tuple[float, str]]:
    """Note from now on what begins when."""
    times: list[tuple[float, str]] = []
    executor.starting = lambda operation: times.append((executor.now(), operation.subject.name))
    return times


def test_a_resource_that_fails_holds_back_only_what_needs_it_and_is_tried_again_when_it_is_asked_for(
    site: Site,
) -> None:
    """Not before: how long that waits is its caller's matter."""
    executor = SimulatedExecutor(fails=lambda operation: operation.subject.name == "n0")
    times = begun(executor)
    with core_of(site, executor) as core:
        core.desire(groups_of(TWO))
        core.run(lambda: core.is_at_rest)
        assert {urn.rpartition("::")[2]: str(error) for urn, error in core.failures.items()} == {"n0": "chance"}
        assert {urn.rpartition("::")[2]: on.rpartition("::")[2] for urn, on in core.waiting.items()} == {"n1": "n0"}
        assert set(site.books.things) == {"n3#0.0"}
        core.run(lambda: core.is_settled, 100)
        assert [name for _at, name in times].count("n0") == 1
        executor.fails = lambda _operation: False
        retry(core)
        core.run(lambda: core.is_settled, 1)
        assert core.is_settled
        assert core.failures == {}


def test_a_failure_is_forgotten_when_something_else_is_desired_and_kept_when_not(site: Site) -> None:
    """Another desired resource is tried at once."""
    executor = SimulatedExecutor(fails=lambda operation: operation.subject.inputs["value"] == 0)
    with core_of(site, executor) as core:
        core.desire(groups_of((Node(0, 0),)))
        core.run(lambda: core.is_settled, 20)
        times = begun(executor)
        core.desire(groups_of((Node(0, 0), Node(1, 1))))
        core.run(lambda: core.is_at_rest)
        assert [name for _at, name in times] == ["n1"]
        now = executor.now()
        core.desire(groups_of((Node(0, 0, value=1),)))
        core.run(lambda: core.is_settled, 1)
        assert (now, "n0") in times
        assert core.is_settled


def test_a_creation_that_fails_when_it_is_no_longer_desired_leaves_nothing_to_be_done(site: Site) -> None:
    """There is nothing that could be tried again."""
    executor = SimulatedExecutor(lambda _one: 5.0, fails=lambda operation: operation.subject.name == "n0")
    with core_of(site, executor) as core:
        core.desire(groups_of(TWO))
        core.run(lambda: False, 1)
        core.desire(groups_of(TWO[2:]))
        core.run(lambda: core.is_settled, 60)
        assert core.is_settled
        assert core.failures == {}


def test_an_operation_that_hangs_stays_the_only_one_of_its_resource_until_it_ends(site: Site) -> None:
    """However often something else is desired; its result counts, and is then made what is desired."""
    executor = SimulatedExecutor(lambda one: 1000.0 if one.subject.name == "n0" else 0.01)
    times = begun(executor)
    with core_of(site, executor) as core:
        for value in (0, 1, 0, 1):
            core.desire(groups_of((Node(0, 0, value=value), Node(3, 1, value=value))))
            core.run(lambda: core.is_as_desired(core.urn_of(node_key(3))), 5)
            assert core.is_as_desired(core.urn_of(node_key(3))), "the same party, and not held up"
        assert [name for _at, name in times].count("n0") == 1
        core.run(lambda: core.is_settled, 3000)
        assert core.is_settled
    assert site.books.things["n0#0.0"]["value"].value == 1


def test_what_a_creation_under_way_refers_to_is_deleted_only_after_that(site: Site) -> None:
    """The state doesn't have the user yet."""
    executor = SimulatedExecutor(lambda one: 100.0 if one.subject.name == "n1" else 0.01)
    times = begun(executor)
    with core_of(site, executor) as core:
        core.desire(groups_of(TWO))
        core.run(lambda: False, 1)
        core.desire(groups_of(TWO[2:]))
        core.run(lambda: core.is_settled, 1000)
        assert core.is_settled
    assert [name for _at, name in times][-3:] == ["n1", "n1", "n0"]
    assert times[-1][0] > 100
    assert set(site.books.things) == {"n3#0.0"}


def test_an_old_instance_goes_only_when_its_users_have_its_successor(site: Site) -> None:
    """Also where one of them takes long, or fails for a time."""
    bring(site, TWO)
    executor = SimulatedExecutor(fails=lambda one: one.subject.name == "n1")
    with core_of(site, executor) as core:
        core.desire(groups_of((replace(TWO[0], key=1), *TWO[1:])))
        core.run(lambda: core.is_settled, 5)
        assert {"n0#0.0", "n0#1.0"} < set(site.books.things)
        executor.fails = lambda _operation: False
        retry(core)
        core.run(lambda: core.is_settled, 60)
    assert set(site.books.things) == {"n0#1.0", "n1#0.0", "n3#0.0"}


def test_an_output_that_changes_is_passed_on_to_groups_in_which_nothing_else_does(site: Site) -> None:
    """From one to the next, and no further than it changes something."""
    chain: Graph = (Node(0, 0), Node(1, 1, uses=(0,)), Node(2, 2, uses=(1,)), Node(3, 3))
    executor = SimulatedExecutor()
    after = (replace(chain[0], value=1), *chain[1:])
    with core_of(site, executor) as core:
        core.desire(groups_of(chain))
        core.run(lambda: core.is_settled, 60)
        times = begun(executor)
        core.desire(groups_of(after))
        core.run(lambda: core.is_settled, 60)
    assert [name for _at, name in times] == ["n0", "n1", "n2"]
    assert site.engine().up(lambda: declare(after), refresh=True).unchanged


def test_what_waits_for_its_turn_is_withdrawn_when_something_else_is_desired(site: Site) -> None:
    """It is made as it is desired by then, and once."""
    before: Graph = tuple(Node(number, number) for number in (0, 3, 6, 9, 12))
    executor = SimulatedExecutor(lambda _one: 0.9)
    subjects: list[object] = []
    executor.starting = lambda one: subjects.append((one.subject.name, one.subject.inputs["value"]))
    with core_of(site, executor) as core:
        core.desire(groups_of(before))
        core.run(lambda: False, 0.5)
        assert len(subjects) == 4
        core.desire(groups_of((*before[:3], replace(before[3], value=1), before[4])))
        core.run(lambda: core.is_settled, 60)
        assert core.is_settled
    assert subjects[4:] == [("n9", 1)]


def test_what_can_not_stay_without_a_resource_goes_before_it_is_made_anew(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And comes back after it."""

    async def replacing(_self: object, request: DiffRequest) -> DiffResponse:
        old, new = request.old_state, request.new_inputs
        keys = [key for key in sorted({*old, *new} - {"out"}) if old.get(key) != new.get(key)]
        return DiffResponse(changes=bool(keys), diffs=keys, replaces=keys, delete_before_replace=True)

    monkeypatch.setattr(BookKeeper, "diff", replacing)
    chain: Graph = (Node(0, 0), Node(1, 1, uses=(0,)), Node(2, 2, uses=(1,)), Node(3, 3))
    bring(site, chain)
    executor = SimulatedExecutor()
    steps: list[tuple[str, str]] = []
    executor.starting = lambda one: steps.append((one.kind.value, one.subject.name))
    bring(site, (replace(chain[0], key=1), *chain[1:]), executor)
    assert steps == [
        *(("deleting first", name) for name in ("n2", "n1", "n0")),
        *(("creating", name) for name in ("n0", "n1", "n2")),
    ]
    assert set(site.books.things) == {"n0#1.0", "n1#0.0", "n2#0.0", "n3#0.0"}


def test_the_state_is_written_when_nothing_goes_on_and_at_times_although_something_does(site: Site) -> None:
    """With what is under way, so that the end of that is noted on what was written."""
    executor = SimulatedExecutor(lambda one: 60.0 if one.subject.name == "n0" else 0.01)

    def pending() -> list[str]:
        checkpoint = parse_checkpoint(site.state_path.read_text(), "", site.state_path)
        return [operation.resource.name for operation in checkpoint.pending]

    with core_of(site, executor) as core:
        core.desire(groups_of(TWO))
        core.run(lambda: False, 1)
        assert not site.state_path.exists()
        core.run(lambda: False, 9)
        assert pending() == ["n0"]
        core.run(lambda: core.is_settled, 100)
        core.run(lambda: False, 1)
        assert pending() == []
        written = site.state_path.stat()
        core.desire(groups_of(TWO))
        core.run(lambda: False, 100)
        assert site.state_path.stat() == written
    assert site.state_path.stat() == written


def test_a_stop_lets_what_runs_end_and_begins_nothing(site: Site) -> None:
    """What was not begun isn't noted either; the next core goes on."""
    executor = SimulatedExecutor(lambda _one: 5.0)
    with core_of(site, executor) as core:
        core.desire(groups_of(TWO))
        core.run(lambda: False, 1)
        core.stop()
        core.run(lambda: core.is_at_rest)
        assert core.is_stopped
    assert set(site.books.things) == {"n0#0.0", "n3#0.0"}
    bring(site, TWO)
    assert len(site.books.made) == 3


def test_what_does_not_end_stays_under_way_in_the_state_and_is_found_out_by_the_next_core(site: Site) -> None:
    """It was made meanwhile: it is taken over, not made twice."""
    executor = SimulatedExecutor(lambda one: 1000.0 if one.subject.name == "n0" else 0.01, is_early=True)
    with core_of(site, executor) as core:
        core.desire(groups_of(TWO))
        core.run(lambda: False, 1)
    checkpoint = parse_checkpoint(site.state_path.read_text(), "", site.state_path)
    assert [(operation.kind, operation.resource.name) for operation in checkpoint.pending] == [("creating", "n0")]
    bring(site, ())
    assert site.books.things == {}
    assert site.state() == {}


def test_creations_that_were_broken_off_are_finished_in_the_order_of_their_needs(site: Site) -> None:
    """As they are where another engine wrote the state after a kill, and the journal's creations are under way anew."""
    bring(site, TWO)
    whole = json.loads(site.state_path.read_text())
    latest = whole["checkpoint"]["latest"]
    made = [one for one in latest["resources"] if one["type"] == "books:index:Node"]
    latest["resources"] = [one for one in latest["resources"] if one not in made]
    latest["pending_operations"] = [
        {"resource": {**one, "id": "", "outputs": {}}, "type": "creating"} for one in reversed(made)
    ]
    site.state_path.write_text(json.dumps(whole))
    executor = SimulatedExecutor()
    times = begun(executor)
    things = dict(site.books.things)
    bring(site, TWO, executor)
    assert sorted(name for _at, name in times) == ["n0", "n1", "n3"]
    began = {name: at for at, name in times}
    assert began["n0"] < began["n1"]
    assert site.books.things.keys() == things.keys()
    assert len(site.books.made) == 3
    assert site.engine().up(lambda: declare(TWO), refresh=True).unchanged


def test_a_component_shows_outputs_of_its_members_once_these_are_as_desired(site: Site) -> None:
    """They need it, and so it is in the state before; a change of theirs is shown as well."""
    member = Resource(node_key(0), {"value": 0, "key": 0, "first": False}, root_key(0))
    shown = {"deep": [{"out": Ref(node_key(0), ("out",))}], "all": Ref(node_key(0), ("key", "value"), "{}-{}")}

    def desired(member: Resource) -> dict[ResourceKey, Group]:
        return {root_key(0): _group((Resource(root_key(0), {"a": 1}, outputs=shown), member))}

    def outputs() -> dict[str, object]:
        (root,) = (one for urn, one in site.state().items() if urn.endswith("::r0"))
        return {**root["outputs"], "deep": root["outputs"]["deep"][0]["out"]}

    with core_of(site, SimulatedExecutor()) as core:
        core.desire(desired(member))
        core.run(lambda: core.is_settled, 5)
        assert core.is_settled
    first = outputs()
    assert first["all"] == "0-0"
    changed = Resource(member.key, {**member.inputs, "value": 1}, member.parent)
    with core_of(site, SimulatedExecutor()) as core:
        core.desire(desired(changed))
        core.run(lambda: core.is_settled, 5)
    assert outputs()["all"] == "0-1"
    assert outputs()["deep"] != first["deep"]


def test_a_provider_that_never_makes_what_is_wanted_is_a_failure_and_no_endless_loop(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told."""

    async def differ(_self: object, _request: object) -> DiffResponse:
        return DiffResponse(changes=True, diffs=["value"])

    monkeypatch.setattr(BookKeeper, "diff", differ)
    executor = SimulatedExecutor(lambda _one: 0.0)
    times = begun(executor)
    with core_of(site, executor) as core:
        core.desire(groups_of((Node(0, 0),)))
        core.run(lambda: core.is_at_rest)
        assert "is not as it was made" in str([*core.failures.values()])
        core.run(lambda: False, 60)
    assert len(times) == 1


def problems() -> Iterator[tuple[str, dict[ResourceKey, Group], str]]:
    """List what can't be desired, with what is told."""
    one = Resource(node_key(0), {}, root_key(0))
    root = Resource(root_key(0), {}, outputs={})
    yield "parent", {root_key(0): _group((one,))}, "books:index:Root 'r0' is needed and isn't desired"
    yield "twice", {root_key(0): _group((root, one, one))}, "books:index:Node 'n0' is desired twice"
    lost = Resource(node_key(0), {"a": [Ref(node_key(7), ("out",))]}, root_key(0))
    yield "reference", {root_key(0): _group((root, lost))}, "books:index:Node 'n7' is needed and isn't desired"


@pytest.mark.parametrize(("_name", "groups", "reported"), list(problems()), ids=[one[0] for one in problems()])
def test_what_can_not_be_desired_is_refused_in_one_sentence(
    _name: str, groups: dict[ResourceKey, Group], reported: str, site: Site
) -> None:
    """It is a mistake of who says what is desired."""
    with core_of(site, SimulatedExecutor()) as core, pytest.raises(EngineError, match=reported):
        core.desire(groups)


def test_a_reference_to_an_output_that_is_not_there_is_a_failure_of_its_resource(site: Site) -> None:
    """Others go on."""
    groups = groups_of(TWO)
    wrong = Resource(node_key(5), {"x": Ref(node_key(0), ("none",))}, root_key(0))
    first = groups[root_key(0)]
    with core_of(site, SimulatedExecutor()) as core:
        core.desire({**groups, root_key(0): _group((*first.members, wrong))})
        core.run(lambda: core.is_at_rest)
        assert [str(error).rpartition("::")[2] for error in core.failures.values()] == ["n0 has no output none"]
    assert len(site.books.things) == 3


def test_an_optional_output_that_is_not_there_is_an_empty_text(site: Site) -> None:
    """One that is there is taken as any other."""
    groups = groups_of(TWO)
    inputs = {"value": 0, "first": False, "key": OptionalRef(node_key(0), ("none",))}
    absent = Resource(node_key(5), inputs, root_key(0))
    present = Resource(node_key(6), {**inputs, "key": OptionalRef(node_key(0), ("value",))}, root_key(0))
    members = (*groups[root_key(0)].members, absent, present)
    with core_of(site, SimulatedExecutor()) as core:
        core.desire({**groups, root_key(0): _group(members)})
        core.run(lambda: core.is_at_rest)
        assert core.is_settled
        inputs_of = {urn.rpartition("::")[2]: one.inputs for urn, one in core.snapshot.live.items()}
    assert inputs_of["n5"]["key"] == ""
    assert inputs_of["n6"]["key"] == inputs_of["n0"]["value"]


def test_what_follows_another_resource_waits_for_it_only_where_that_is_desired(site: Site) -> None:
    """And is told when that comes and goes, though nothing else of it changes."""
    follower = Resource(node_key(3), {"value": 0, "key": 0, "first": False}, root_key(2), follows=(node_key(0),))
    alone = {root_key(2): _group((Resource(root_key(2), {}, outputs={}), follower))}
    both = {**groups_of((Node(0, 0),)), **alone}

    def dependencies() -> list[str]:
        (state,) = (one for urn, one in site.state().items() if urn.endswith("::n3"))
        return [urn.rpartition("::")[2] for urn in state["dependencies"]]

    for groups, expected in ((both, ["n0"]), (alone, []), (both, ["n0"])):
        with core_of(site, SimulatedExecutor()) as core:
            core.desire(alone if groups is both else both)
            core.run(lambda: core.is_settled, 5)
            core.desire(groups)
            core.run(lambda: core.is_settled, 5)
            assert core.is_settled
        assert dependencies() == expected
    assert len(site.books.things) == 2


def test_needs_in_a_circle_wait_and_are_told(site: Site) -> None:
    """For each other."""
    circle = tuple(replace(node, waits=(1 - node.number,)) for node in (Node(0, 0), Node(1, 0)))
    with core_of(site, SimulatedExecutor()) as core:
        core.desire(groups_of((*circle, Node(3, 1))))
        core.run(lambda: core.is_at_rest)
        waiting = {urn.rpartition("::")[2]: on.rpartition("::")[2] for urn, on in core.waiting.items()}
        assert waiting == {"n0": "n1", "n1": "n0"}
    assert set(site.books.things) == {"n3#0.0"}
