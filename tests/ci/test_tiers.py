"""What CI runs: each test in some tier; what fails is repeated once, and named at the end where it passed then."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from tests.support.cluster_build import missing
from tests.tiers import as_root, in_ci, named_marks, selections, tiers_in, tiers_of

pytestmark = pytest.mark.slow
SECONDS = 600
"""Until something hangs."""
CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = """
import pathlib
import pytest

def at_first(name):
    mark = pathlib.Path(f"{name}.ran")
    seen = mark.exists()
    mark.touch()
    return not seen

def test_steady():
    pass

@pytest.mark.flaky
@pytest.mark.parametrize("word", ["a b", "c"])
def test_flaky(word):
    assert not (word == "a b" and at_first("flaky"))

@pytest.mark.other
def test_other():
    assert not at_first("other")

@pytest.mark.broken
def test_broken():
    assert at_first("broken") is None
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a target for each kind of test, in a repository's usual places."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n flaky:\n other:\n broken:\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/tiers.sh").write_text((CHECKOUT / "tests/tiers.sh").read_text())
    pytest_command = f"\t@{sys.executable} -m pytest -q $(PYTEST_ARGS) -m"
    targets = {
        "steady": "'not flaky and not other and not broken'",
        "flaky": "flaky",
        "other": "other",
        "broken": "broken",
    }
    (tmp_path / "Makefile").write_text("".join(f"{name}:\n{pytest_command} {mark}\n" for name, mark in targets.items()))
    return tmp_path


def run(project: Path, script: str) -> tuple[int, list[str]]:
    """Run a script as CI runs its own: gives its exit code and what it says at the end."""
    code, _, end = reported(project, script)
    return code, end


def reported(project: Path, script: str) -> tuple[int, str, list[str]]:
    """Run a script as CI runs its own: gives its exit code, what it says first, and what at the end."""
    head = "set -euo pipefail; . tests/tiers.sh; trap summary EXIT\n"
    done = subprocess.run(
        ["bash", "-c", f"{head}{script}\npassed"],
        cwd=project,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},  # that of a lane around us
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    first, _, end = done.stdout.rpartition("\n== how long it took, and how much processor time\n")
    return done.returncode, first, end.splitlines()


def named(lines: list[str], word: str) -> list[str]:
    """Return what stands behind a word at the beginning of a line."""
    return [line.removeprefix(f"{word}: ") for line in lines if line.startswith(f"{word}: ")]


def test_without_failures_nothing_is_flaky_and_every_tier_has_its_time(project: Path) -> None:
    """In their order, with the sum below."""
    code, lines = run(project, 'tier steady; timed "more words" true')
    assert code == 0
    assert named(lines, "flaky") == ["none"]
    shown = [re.fullmatch(r" *(\d+) s +\d+ s  (.*)", line) for line in lines[:-1]]
    assert [match[2] for match in shown if match] == ["make steady", "more words", "all"]


def test_test_that_passes_when_repeated_is_named_flaky(project: Path) -> None:
    """Of every tier, also of one that another script ran; and the run goes on."""
    code, lines = run(project, 'tier flaky; tier steady; timed inner bash -c ". tests/tiers.sh; tier other; summary"')
    assert code == 0
    assert named(lines, "flaky") == ["test_it.py::test_flaky[a b]", "test_it.py::test_other"]
    assert named(lines, "failed") == []


@pytest.mark.parametrize("how", ["{}", "lane() {{ {}; }}; side_by_side lane"])
def test_failed_tests_are_repeated_in_their_tiers_own_directory(project: Path, how: str) -> None:
    """What is remembered here has no say in it."""
    tiers = how.format('tier -C "$room" flaky; tier -C "$room" other')
    code, lines = run(project, f'mkdir out; cd out; room="{project}"; {tiers}')
    assert code == 0
    assert named(lines, "flaky") == ["test_it.py::test_flaky[a b]", "test_it.py::test_other"]


def test_test_that_fails_twice_fails_the_run(project: Path) -> None:
    """With its tier, the flaky ones and the times; later tiers run all the same."""
    code, lines = run(project, "tier other; tier broken; tier steady")
    assert code != 0
    assert named(lines, "failed") == ["test_it.py::test_broken"]
    assert named(lines, "failed tier") == ["make broken"]
    assert named(lines, "flaky") == ["test_it.py::test_other"]
    assert "make steady" in lines[2]


def test_all_tiers_that_fail_are_named_and_the_first_gives_the_exit_code(project: Path) -> None:
    """Whether or not they are tests."""
    code, lines = run(project, 'timed "one word" bash -c "exit 3"; timed two false; timed three true')
    assert code == 3
    assert named(lines, "failed tier") == ["one word", "two"]
    assert [line.rpartition("s  ")[2] for line in lines[:4]] == ["one word", "two", "three", "all"]


def test_an_interrupt_ends_the_run(project: Path) -> None:
    """Whoever interrupts wants no other tier; what is under way ends itself first, as pytest does."""
    code, first, _ = reported(project, "timed one bash -c 'kill -INT $PPID; sleep 1; exit 2'; timed two echo begun")
    assert code == 130
    assert "begun" not in first


MEET = """
meet() { touch "$1.there"; until [ -e "$2.there" ]; do sleep 0.01; done; }
one() { timed "one's" words one two; }
two() { timed "two's" words two one; }
words() { echo "$1 begins"; meet "$@"; echo "$1 ends"; }
"""
"""Lanes that end when both have begun."""


def test_lanes_run_at_the_same_time_and_the_output_of_each_is_whole(project: Path) -> None:
    """In the order of their names; each begun tier is told at once, and its time at the end."""
    code, first, end = reported(project, f"{MEET}side_by_side one two; timed after true")
    assert code == 0
    for name in ("one", "two"):
        assert f"{name} begins\n{name} ends\n" in first
        assert re.search(rf"^-- {name}: {name}'s \(after \d+ s\)$", first.split("one begins")[0], re.MULTILINE)
    assert first.index("one ends") < first.index("two begins")
    shown = [re.fullmatch(r" *(\d+) s +\d+ s  (.*)", line) for line in end[:-1]]
    assert [match[2] for match in shown if match] == ["one's", "two's", "after", "all"]
    assert end[-1] == "flaky: none"


def test_failed_tests_of_parallel_lanes_are_repeated_after_all_lanes_end(project: Path) -> None:
    """Each tier's failures are repeated separately; the rest of a lane runs before that."""
    lanes = "one() {\n tier flaky\n tier steady\n echo one ends\n}\ntwo() {\n tier other\n echo two ends\n}\n"
    code, first, end = reported(project, f"{lanes}side_by_side one two; tier steady")
    assert code == 0
    assert named(end, "flaky") == ["test_it.py::test_flaky[a b]", "test_it.py::test_other"]
    assert named(end, "failed") == []
    assert max(first.index("one ends"), first.index("two ends")) < first.index(": what failed, once more")
    assert [line.rpartition("s  ")[2] for line in end[:7]] == [
        *("make flaky", "make steady", "make other"),
        *("make flaky: what failed, once more", "make other: what failed, once more", "make steady", "all"),
    ]


def test_a_lane_that_fails_keeps_nothing_from_running(project: Path) -> None:
    """What failed twice is named, each with its tier, and no other tier's failures are taken for it."""
    lanes = "one() {\n tier broken\n tier other\n}\ntwo() {\n timed words false\n tier steady\n}\n"
    code, _, end = reported(project, f"{lanes}side_by_side one two; timed after true")
    assert code != 0
    assert named(end, "failed") == ["test_it.py::test_broken"]
    assert named(end, "failed tier") == ["make broken: what failed, once more", "words"]
    assert named(end, "flaky") == ["test_it.py::test_other"]
    assert [line.rpartition("s  ")[2] for line in end[2:4]] == ["words", "make steady"]
    assert any(line.endswith("  after") for line in end)


def test_a_lane_that_ends_outside_its_tiers_is_named_itself(project: Path) -> None:
    """Not where its tiers say enough."""
    lanes = "one() { false; }\ntwo() { timed words false; }\n"
    code, end = run(project, f"{lanes}side_by_side one two")
    assert code == 1
    assert named(end, "failed tier") == ["one", "words"]


@pytest.mark.parametrize("failing", ["one", "two"])
def test_the_exit_code_is_that_of_whichever_lane_failed(project: Path, failing: str) -> None:
    """The first or the last, by no test of pytest's."""
    lanes = "one() { true; }\ntwo() { true; }\n" + f"{failing}() {{ timed words bash -c 'exit 3'; }}\n"
    assert run(project, f"{lanes}side_by_side one two")[0] == 3


def test_interrupt_also_ends_parallel_lanes(project: Path) -> None:
    """A shell's jobs in the background ignore interrupts, and so does all that they start."""
    asking = f"{sys.executable} -c 'import signal; print(signal.getsignal(signal.SIGINT))'"
    _, first, _ = reported(project, f"one() {{ timed asked {asking}; }}; side_by_side one")
    assert "default_int_handler" in first


def test_ci_and_the_readme_run_their_tiers_this_way() -> None:
    """Every `make` that tests goes through it; from the wheel run all but those of the checkout."""
    for path, tiers in ((".ci/run", 6), ("tests/readme.sh", 1)):
        text = (CHECKOUT / path).read_text()
        assert len(re.findall(r"^ *tier ", text, re.MULTILINE)) == tiers
        assert not re.search(r"^ *make (test|soak)", text, re.MULTILINE)
        assert ". tests/tiers.sh" in text
        assert re.search(r"^passed$", text, re.MULTILINE)
        subprocess.run(["bash", "-n", CHECKOUT / path], check=True)
    of_root = tiers_in((CHECKOUT / ".ci/run").read_text())
    assert [tier for tier, wheel in of_root.items() if not wheel] == ["test-checkout"]


@pytest.mark.parametrize(
    ("marks", "tiers"),
    [
        ("", "test"),
        ("envoy", "test"),
        ("root", "test test-slow"),
        ("slow", "test-slow"),
        ("docker envoy", "test-slow"),
        ("docker cluster", "test-cluster"),
        ("slow cluster", "test-cluster"),
        ("cluster kubelets envoy", "test-kubelets"),
        ("soak envoy", "soak"),
        ("pulumi envoy", "test-pulumi"),
        ("pulumi docker", "test-pulumi"),
        ("pulumi cluster kubelets", "test-pulumi"),
        ("checkout envoy", "test"),
        ("checkout slow", "test-checkout"),
        ("checkout cluster", "test-checkout"),
        ("checkout pulumi", "test-checkout"),
        ("checkout cluster kubelets", ""),
    ],
)
def test_every_kind_of_test_has_its_tier(marks: str, tiers: str) -> None:
    """By the words of the Makefile, of .ci/run and of the script of the README."""
    assert tiers_of(marks.split(), in_ci()) == set(tiers.split())


def test_as_root_run_all_tiers_but_the_readmes() -> None:
    """Each test once: what the new user runs isn't repeated."""
    assert as_root().keys() == in_ci().keys() - {"test"}
    script = '# tier no\ntier soak MINUTES=5\nif x; then\n  tier -C "$room" y\nfi\n'
    assert tiers_in(script) == {"soak": False, "y": True}


def test_marks_of_a_make_target_are_read_from_its_recipe() -> None:
    """The last `-m` of a recipe counts, whatever modules run before."""
    text = 'test: x ## y\n\t@python -m pip\n\t@python -m pytest $(A) -m "not a"\n\nsoak:\n\t@pytest -m soak\nx: -m y\n'
    assert selections(text) == {"test": "not a", "soak": "soak"}


SKIPPED = """
import pytest

@pytest.mark.parametrize("who", ["only root can do this", "there is no zsh here"])
def test_unmarked(who):
    pytest.skip(who)

@pytest.mark.slow
def test_slow():
    pytest.skip("only root can do this")
"""


def judged(place: Path, *arguments: str, without: str = "nothing", tests: str = SKIPPED) -> str:
    """Run tests under the rules of the tiers, some word of the Makefile changed, and give what pytest says."""
    for name in ("Makefile", ".ci/run", "tests/readme.sh", "tests/tiers.py"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text((CHECKOUT / name).read_text().replace(without, ""))
    (place / "test_it.py").write_text(tests)
    (place / "pytest.ini").write_text("[pytest]\nmarkers =\n slow:\n checkout:\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.tiers", "-q", "-rf", *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=SECONDS)
    return done.stdout + done.stderr


def test_skip_without_root_fails_where_no_root_tier_runs_the_test(tmp_path: Path) -> None:
    """It would never run; tests that are skipped for other reasons pass."""
    reported = judged(tmp_path)
    assert "1 failed, 2 skipped" in reported
    assert "test_it.py::test_unmarked[only root can do this] is skipped without root and runs in no tier" in reported


def test_a_test_without_a_tier_stops_the_run(tmp_path: Path) -> None:
    """With its name, before anything runs."""
    reported = judged(tmp_path, without="slow or ")
    assert "no tier of CI runs test_it.py::test_slow: see the marks" in reported
    assert "skipped" not in reported


def test_tests_of_the_checkout_are_left_out_where_there_is_none(tmp_path: Path) -> None:
    """Where `locallb/` isn't, what is tested is the wheel."""
    tests = "import pytest\n\n@pytest.mark.checkout\ndef test_of_it():\n    pass\n\ndef test_other():\n    pass\n"
    (tmp_path / "locallb").mkdir()
    assert "2 passed" in judged(tmp_path, tests=tests)
    (tmp_path / "locallb").rmdir()
    assert "1 passed, 1 deselected" in judged(tmp_path, tests=tests)


@pytest.mark.parametrize(
    ("text", "selected", "left_out"),
    [
        ("def test_it(): ...", "test", "test-slow test-cluster soak"),
        ("@pytest.mark.slow\n", "test test-slow", "test-cluster soak"),
        ("pytestmark = pytest.mark.cluster\n", "test-cluster", "test test-slow soak"),
        (
            "pytestmark = [\n    pytest.mark.docker,\n    pytest.mark.skipif(x[0], reason='y'),\n]\n",
            "test-slow",
            "test",
        ),
        ("pytestmark = [pytest.mark.cluster]\n@pytest.mark.kubelets\n", "test-cluster test-kubelets", "test"),
        ('    pytestmark = pytest.mark.slow\n"""marks.docker"""\n', "test test-slow", "soak"),
        ("pytest.param(1, marks=pytest.mark.soak)", "test soak", "test-cluster"),
    ],
)
def test_tier_reads_only_files_that_can_have_a_test_of_it(text: str, selected: str, left_out: str) -> None:
    """By the marks in the text: a file's own ones are those of all its tests, others those of some."""
    terms = selections((CHECKOUT / "Makefile").read_text())
    marks = named_marks(text)
    assert {tier: marks.may_select(terms[tier]) for tier in [*selected.split(), *left_out.split()]} == {
        **dict.fromkeys(selected.split(), True),
        **dict.fromkeys(left_out.split(), False),
    }


def test_files_without_a_test_of_the_tier_are_not_imported(tmp_path: Path) -> None:
    """One whose import fails shows it."""
    (tmp_path / "test_other.py").write_text("raise RuntimeError('imported')\n")
    assert "1 passed" in judged(tmp_path, "-m", "slow", tests=MARKED)
    assert "imported" in judged(tmp_path, "-m", "not slow", tests=MARKED)
    assert "imported" in judged(tmp_path, "-m", "slow or mine", tests=MARKED)


MARKED = "import pytest\n\n@pytest.mark.slow\ndef test_slow():\n    pass\n"


def test_mark_that_a_file_does_not_name_stops_the_run(tmp_path: Path) -> None:
    """Its tier wouldn't find the test."""
    (tmp_path / "elsewhere.py").write_text("import pytest\n\nlate = getattr(pytest.mark, 'slow')\n")
    tests = "from elsewhere import late\n\n@late\ndef test_it():\n    pass\n"
    reported = judged(tmp_path, "-p", "elsewhere", tests=tests)
    assert "marks of test_it.py::test_it aren't named in their files" in reported


@pytest.mark.parametrize(
    "made", ["support.kubelet_images", "support.cluster_build", "support.pulumi_build", "conformance.ready"]
)
def test_what_tests_are_made_of_is_made_by_any_python(made: str) -> None:
    """`.ci/run` makes it before there is an environment with what tests need."""
    subprocess.run([sys.executable, "-S", "-c", f"import tests.{made}"], cwd=CHECKOUT, check=True)


def test_what_two_tiers_need_is_made_by_the_first(tmp_path: Path) -> None:
    """The second one waits for it, and finds it made."""
    target, seen = tmp_path / "bin" / "program", []

    def make() -> None:
        with missing(target) as wanted:
            seen.append(wanted)
            target.touch()

    second = Thread(target=make)
    with missing(target) as wanted:
        assert wanted
        second.start()
        second.join(0.2)
        assert second.is_alive()
        target.touch()
    second.join()
    assert seen == [False]
