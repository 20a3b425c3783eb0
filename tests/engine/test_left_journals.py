"""Journals that a run left: what a kill leaves of one, what nobody writes, and what another engine did since."""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb import safe_files
from locallb.engine.engine import Engine
from locallb.engine.monitor import refuse_unfinished
from locallb.engine.state.errors import EngineError, StateBroken, StateUnwritable
from locallb.engine.state.journal import read_journal
from locallb.engine.store import Store
from tests.engine.graphs import CrashError, Doom, TornFiles
from tests.engine.interrupting import interrupt_twice
from tests.support.balancers import BOTH, ONE, declare
from tests.support.engine import Bench, World, WorldProvider, make_project, messages, short

HEAD = '{"journal":1,"base":"x"}\n'
DROP = '[{"drop":"urn:pulumi:dev::local-lb::a:b:C::d"}]\n'
NONE = {
    "another format": HEAD.replace("1", "0"),
    "a list first": "[]\n",
    "a text first": '"journal"\n',
    "no base": '{"journal":1}\n',
    "no journal at all": "hello",
    "something else": '{"version":3}',
    "zeros within": HEAD + "\0" * 64 + "\n" + DROP,
    "half a line within": HEAD + '[{"drop":"urn\n' + DROP,
    "an empty line": HEAD + "\n" + DROP,
    "a number": HEAD + "7\n",
    "an unknown change": HEAD + '[{"turn":{"urn":"a","type":"b"},"number":1}]\n',
    "an unknown short change": HEAD + '[{"turn":1}]\n',
    "no change": HEAD + "[{}]\n",
    "a change that is none": HEAD + "[1]\n",
    "a resource that is none": HEAD + '[{"put":{"urn":1}}]\n',
    "a number that is none": HEAD + '[{"free":"a"}]\n',
    "an end without its number": HEAD + '[{"supersede":{"urn":"a","type":"b"}}]\n',
    "too deep": HEAD + "[" * 100_000 + "\n",
}


@pytest.fixture
def path(bench: Bench) -> Path:
    """Return the journal's path, in a project with a state."""
    assert bench.engine().up(lambda: declare(ONE)).ok
    return bench.project.backend / ".pulumi/journals/local-lb/dev.jsonl"


@pytest.mark.parametrize("name", NONE)
def test_a_journal_of_unknown_form_is_refused_in_one_sentence_and_kept(name: str, bench: Bench, path: Path) -> None:
    """By every run; the sentence names the file and the way out, which works."""
    path.write_text(NONE[name])
    state = bench.state_path.read_bytes()
    for run in (Engine.resources, lambda engine: engine.up(lambda: declare(BOTH)), Engine.destroy):
        with pytest.raises(StateBroken) as caught:
            run(bench.engine())
        assert str(caught.value).startswith(f"{path} can't be used: ")
        assert "run `locallb state restore`" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert (path.read_text(), bench.state_path.read_bytes()) == (NONE[name], state)
    reported: list[str] = []
    store = Store(bench.project.backend, "local-lb", "dev")
    assert [text.partition(" ")[0] for text in store.unusable()] == [str(path)]
    store.restore(reported.append)
    assert [Path(text.rpartition(" ")[2]).read_text() for text in reported] == [NONE[name]]
    assert (store.unusable(), bench.state_path.read_bytes()) == ((), state)
    assert bench.engine().up(lambda: declare(ONE)).unchanged


def test_a_journal_of_a_newer_local_lb_is_left_to_that(bench: Bench, path: Path) -> None:
    """It may be sound, so nothing puts it aside."""
    newer = HEAD.replace("1", "2")
    path.write_text(newer)
    store = Store(bench.project.backend, "local-lb", "dev")
    for run in (bench.engine().resources, bench.engine().destroy, lambda: store.restore(lambda _text: None)):
        with pytest.raises(StateBroken, match="the format 2, this engine knows 1; use a newer local-lb"):
            run()
    assert path.read_text() == newer


def test_a_journal_that_does_not_fit_its_state_is_refused(bench: Bench, path: Path) -> None:
    """A state without what others refer to is none; the way out works here too."""
    base = bench.raw()["manifest"]["time"]
    urn = next(resource.urn for resource in bench.checkpoint().resources if "LoopbackAddress" in resource.urn)
    for change in ({"drop": urn}, {"supersede": {"urn": "urn:pulumi:a::b::c::d", "type": "c"}, "number": 1}):
        path.write_text(json.dumps({"journal": 1, "base": base}) + "\n" + json.dumps([change]) + "\n")
        for _ in range(2):
            with pytest.raises(StateBroken, match="doesn't fit the state"):
                bench.engine().up(lambda: declare(ONE))
        with pytest.raises(StateBroken, match="doesn't fit the state"):
            bench.engine().resources()
        store = Store(bench.project.backend, "local-lb", "dev")
        assert store.complaints() == store.unusable() != ()
        store.restore(lambda _text: None)
        assert bench.engine().up(lambda: declare(ONE)).unchanged


@pytest.mark.parametrize("text", ["", HEAD, HEAD[:-1], HEAD[:5], HEAD + DROP[:9], HEAD + "\0" * 99, "\0" * 99])
def test_a_journal_that_was_cut_short_before_its_first_change_is_nothing(text: str, bench: Bench, path: Path) -> None:
    """A process that was killed, or a machine that lost its power, had done nothing yet as far as anybody knows."""
    path.write_text(text)
    assert bench.engine().up(lambda: declare(ONE)).diagnostics == ()
    assert not path.exists()


@given(st.integers(0, 200), st.integers(0, 3))
def test_truncated_journal_counts_up_to_its_last_whole_line(
    tmp_path_factory: pytest.TempPathFactory, length: int, zeros: int
) -> None:
    """No cut is an error."""
    path = tmp_path_factory.mktemp("journal") / "j"
    whole = (HEAD + DROP * 3).encode()
    path.write_bytes(whole[:length] + b"\0" * zeros)
    leftover = read_journal(path)
    assert leftover is not None
    assert len(leftover.mutations) == max(0, whole[:length].count(b"\n") - 1)


@pytest.mark.parametrize("kind", ["directory", "forbidden"])
def test_a_journal_that_cannot_be_read_is_reported(
    kind: str, bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory is put aside like any other rubbish; rights are the user's to give."""
    if kind == "directory":
        path.mkdir()
        with pytest.raises(StateBroken, match="Is a directory; run `locallb state restore"):
            bench.engine().up(lambda: declare(ONE))
        Store(bench.project.backend, "local-lb", "dev").restore(lambda _text: None)
        assert bench.engine().up(lambda: declare(ONE)).unchanged
        return
    path.write_text(HEAD)

    def forbidden(requested: Path, maximum: int) -> bytes:
        if requested == path:
            raise PermissionError(13, "Permission denied")
        return read(requested, maximum)

    read = safe_files.read
    monkeypatch.setattr(safe_files, "read", forbidden)
    with pytest.raises(StateBroken, match=f"{path} can't be read: Permission denied; run this as the user whose"):
        bench.engine().up(lambda: declare(ONE))
    with pytest.raises(StateBroken, match="run this as the user whose"):
        Store(bench.project.backend, "local-lb", "dev").restore(lambda _text: None)


def killed_at(bench: Bench, write: int, program: Any) -> bool:  # noqa: ANN401 - a program
    """Die at a write of an update; tells whether it came so far."""
    doom = Doom(write)
    bench.files = TornFiles(doom)
    bench.world.frozen = lambda: doom.dead
    try:
        bench.engine().up(program)
    except (CrashError, StateUnwritable):
        pass
    finally:
        bench.files, bench.world.frozen = type(bench.files).__mro__[1](), lambda: False
    return doom.dead


@pytest.mark.parametrize("wrote", ["refreshed", "destroyed"])
@pytest.mark.parametrize("wanted", [BOTH, ONE, {"balancers": {}}], ids=["both", "one", "none"])
def test_update_repairs_a_state_that_another_engine_changed_after_a_kill(
    wrote: str, wanted: dict[str, Any], tmp_path: Path
) -> None:
    """For kills at any write: afterwards the world is what the program says, and nothing else is left."""
    at = 0
    while True:
        bench = Bench(make_project(tmp_path / str(at)), World())
        assert bench.engine().up(lambda: declare(ONE)).ok
        state = bench.state_path.read_bytes()
        if not killed_at(bench, at, lambda: declare(BOTH)):
            break
        if bench.state_path.read_bytes() == state:  # the other engine starts from here, and knows no journal
            journal = bench.project.backend / ".pulumi/journals/local-lb/dev.jsonl"
            remaining = journal.read_bytes() if journal.exists() else None
            journal.unlink(missing_ok=True)
            other = bench.engine()
            assert (other.destroy() if wrote == "destroyed" else other.refresh()).ok
            whole = json.loads(bench.state_path.read_text())
            whole["checkpoint"]["latest"]["manifest"]["time"] = "2001-01-01T00:00:00Z"
            bench.state_path.write_text(json.dumps(whole))
            if remaining is not None:
                journal.write_bytes(remaining)
        assert bench.engine().up(lambda: declare(wanted)).ok, at
        assert not bench.checkpoint().pending
        names = {key.partition("::")[2].partition("|")[0] for key in bench.world.things}
        assert names == set(wanted["balancers"]), at
        assert bench.engine().up(lambda: declare(wanted), refresh=True).unchanged
        at += 3
    assert at > 20


def test_a_journal_is_taken_over_where_one_object_is_the_provider_of_a_version(tmp_path: Path) -> None:
    """What another engine destroyed since takes the provider's entry along, which had the version."""

    def program(*names: str) -> Callable[[], None]:
        def declare_each() -> None:
            for name in names:
                options = pulumi.ResourceOptions(version="1.2.3")
                pulumi.CustomResource("locallb:index:Reachable", name, {"address": name}, options)

        return declare_each

    for at in count():
        project, world, doom = make_project(tmp_path / str(at)), World(), Doom(at)
        providers = {"locallb": WorldProvider(world)}
        engine = Engine(project, "dev", providers)
        assert engine.up(program("a")).ok
        world.frozen = partial(getattr, doom, "dead")
        store = Store(project.backend, project.name, "dev", TornFiles(doom))
        with suppress(CrashError, StateUnwritable):
            Engine(project, "dev", providers, store=store).up(program("a", "b"))
        if not doom.dead:
            break
        world.frozen = lambda: False
        whole = json.loads(project.state_file("dev").read_text())
        whole["checkpoint"]["latest"]["resources"] = []
        whole["checkpoint"]["latest"]["manifest"]["time"] = "2001-01-01T00:00:00Z"
        project.state_file("dev").write_text(json.dumps(whole))
        world.things.clear()
        assert engine.up(program("a", "b")).ok, at
        assert engine.up(program("a", "b"), refresh=True).unchanged, at
        assert {key.partition("|")[0] for key in world.things} == {"Reachable::a", "Reachable::b"}
    assert at > 2


def test_a_run_that_died_leaves_the_official_lock_until_this_engine_has_gone_on(bench: Bench) -> None:
    """So `pulumi destroy` and `pulumi refresh`, which run no program, are refused by their own command line."""
    locks = bench.project.backend / ".pulumi/locks/organization/local-lb/dev"

    def program() -> None:
        declare(ONE)
        refuse_unfinished(bench.project.root, "dev")

    interrupt_twice(bench, program)
    assert len(list(locks.glob("*.json"))) == 1
    with pytest.raises(EngineError, match="run `locallb up`"):
        refuse_unfinished(bench.project.root, "dev")
    result = bench.engine().up(program)
    assert result.ok
    assert "removed the lock that the ended process" in messages(result)[0]
    assert list(locks.glob("*.json")) == []
    refuse_unfinished(bench.project.root, "dev")
    assert [short(resource.urn) for resource in bench.engine().resources()]
