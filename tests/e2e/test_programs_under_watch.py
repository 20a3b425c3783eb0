"""A program that says more than `serve()` under `locallb watch`: it is run again, and its failures change nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from locallb.engine.store import Store
from tests.support.backends import Backend
from tests.support.manifests import node, port, service
from tests.support.stages import Stage
from tests.support.watching import Watch, answers, eventually, watching

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

PROGRAM = """\
from locallb.program import serve
from components.note import Note

reading, plan = serve()
Note("note")
"""
NOTE = """\
import pulumi


class Note(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("my:index:Note", name)
        self.register_outputs({{"text": "{text}"}})
"""


def text_of_note(root: Path) -> object:
    """Return what the state has of the program's own component; None where it has none."""
    notes = [each for each in Store(root / ".state", "local-lb", "dev").peek().in_order() if each.name == "note"]
    return notes[0].outputs["text"] if notes else None


def _is_told(watch: Watch, fault: str) -> bool:
    return fault in watch.reported()


def test_a_changed_program_is_run_again_and_one_that_fails_changes_nothing(
    play: Stage, backend: Callable[..., Backend]
) -> None:
    """Modules that it imports are imported anew; Services are served meanwhile."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    standard = (play.root / "__main__.py").read_text()
    (play.root / "components").mkdir(exist_ok=True)
    note = play.root / "components/note.py"
    note.write_text(NOTE.format(text="one"))
    (play.root / "__main__.py").write_text(PROGRAM)
    with watching(play) as watch:
        eventually(lambda: text_of_note(play.root) == "one", watch)
        eventually(lambda: answers(play.addresses()["n/web"], 8080, "web"), watch)
        address, pids = play.addresses()["n/web"], play.pids()
        note.write_text(NOTE.format(text="two"))
        eventually(lambda: text_of_note(play.root) == "two", watch)
        for text, fault in (
            (NOTE.format(text="three").replace("):", "), )", 1), "SyntaxError"),
            ("raise RuntimeError('not today')\n", "RuntimeError: not today"),
            (NOTE[:14], "ImportError"),
        ):
            note.write_text(text)
            eventually(partial(_is_told, watch, fault), watch)
            assert text_of_note(play.root) == "two"
        play.write("api.yaml", service("api", port(8080, web.port)))
        eventually(lambda: answers(play.addresses()["n/api"], 8080, "web"), watch)
        note.write_text(NOTE.format(text="four"))
        eventually(lambda: text_of_note(play.root) == "four", watch)
        assert answers(address, 8080, "web")
        assert play.pids().items() >= pids.items()
        (play.root / "__main__.py").write_text(standard)
        assert watch.stop() == 0, watch.reported()
    assert (text_of_note(play.root), "Traceback" in watch.reported()) == ("four", False)
