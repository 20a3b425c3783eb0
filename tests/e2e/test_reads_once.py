"""What a command reads: each source, the ledger and the facts of the host once, whatever it does with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from locallb.cli.session import Session
from locallb.host import facts
from locallb.ledger.ledger import Ledger
from locallb.sources.manifests import Manifests
from tests.support.manifests import node, port, service
from tests.support.stages import Stage

TARGET = ("--target", "a")
SEARCHING = (("preview",), ("preview", *TARGET), ("preview", "--format", "json"), ("status",))
CHANGING = (("up", "--yes"), ("up", *TARGET, "--yes"), ("refresh", "--yes"), ("destroy", "--yes"), ("gc", "--yes"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count, by what is read, in the functions that read."""
    counted: Counter[str] = Counter()

    def count(where: Any, name: str, what: Callable[..., str]) -> None:  # noqa: ANN401 - a class or a module
        read = getattr(where, name)

        def counting(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever it takes
            counted[what(*given)] += 1
            return read(*given, **named)

        monkeypatch.setattr(where, name, counting)

    count(Manifests, "read", lambda _type, source, *_: f"source {source.cluster}")
    count(Ledger, "claims", lambda ledger, *_: f"ledger {ledger.directory}")
    count(facts, "socket_owners", lambda *_: "host")
    return counted


@pytest.fixture
def deployed(play: Stage) -> Stage:
    """Return a stack of two sources that is deployed; what it serves needs no backend."""
    play.configure(sources=[{"manifests": "manifests", "name": "c"}, {"manifests": "others", "name": "d"}])
    (play.root / "others").mkdir()
    play.write("a.yaml", node(), service("a", port(8080, 30080)))
    play.up()
    return play


@pytest.mark.envoy
@pytest.mark.parametrize("terms", [*SEARCHING, *CHANGING], ids=" ".join)
def test_no_command_reads_anything_twice(deployed: Stage, reads: Counter[str], terms: tuple[str, ...]) -> None:
    """And who shows a plan has read both sources."""
    reads.clear()
    done = deployed.run(*terms)
    assert done.code == 0, done.err
    assert {what: times for what, times in reads.items() if times > 1} == {}
    assert terms[0] in {"destroy", "gc"} or {"source c", "source d", "host"} <= reads.keys()


@pytest.mark.envoy
def test_the_doctor_reads_no_source_twice(deployed: Stage, reads: Counter[str]) -> None:
    """The host it looks at as the stack does, and once more for whoever has proxies on it."""
    reads.clear()
    assert deployed.run("doctor").code == 0
    assert (reads["source c"], reads["source d"]) == (1, 1)


@pytest.mark.envoy
def test_targeted_update_stores_what_it_read_and_a_preview_does_not(deployed: Stage) -> None:
    """As the program itself stores what it reads."""
    retained = deployed.root / ".state" / "locallb" / "dev" / "c.json"
    before = retained.read_text()
    deployed.write("a.yaml", node(), service("a", port(8080, 30081)))
    assert deployed.run("preview", *TARGET).code == 0
    assert retained.read_text() == before
    assert deployed.run("up", *TARGET, "--yes").code == 0
    assert "30081" in retained.read_text()


@pytest.mark.envoy
def test_targeted_update_keeps_changes_made_before_it_got_the_lock(
    deployed: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It plans again where the state isn't the one that its targets were chosen from."""
    sign_in = Session.sign_in

    def be_overtaken(session: Session) -> None:
        monkeypatch.setattr(Session, "sign_in", sign_in)
        deployed.write("a.yaml", node(), service("a", port(8080, 30081)))
        deployed.up()
        sign_in(session)

    monkeypatch.setattr(Session, "sign_in", be_overtaken)
    assert deployed.run("up", *TARGET, "--yes").code == 0
    assert deployed.run("up", "--yes", "--expect-no-changes").code == 0
