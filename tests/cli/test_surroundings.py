"""The command in odd surroundings: streams that are closed, full or of another encoding, no terminal, no directory."""

from __future__ import annotations

import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

import locallb
from locallb.cli.failures import Exit
from locallb.cli.project import nearest_project
from tests.support.backends import backends
from tests.support.manifests import node, service
from tests.support.stages import CHECKOUT, Done, Stage, stage

LOCALLB = str(Path(sys.executable).parent / "locallb")
SECONDS = 120
SEARCHING = (("--help",), ("status",), ("preview",), ("doctor",), ("gc",), ("state", "check"), ("host", "setup"))
NARROW = (
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"COLUMNS": "1", "LINES": "1"},
    {"COLUMNS": "100000"},
    {"COLUMNS": "many", "TERM": ""},
    {"TERM": "dumb", "FORCE_COLOR": "1"},
)


@pytest.fixture
def play() -> Iterator[Stage]:
    """Return a project whose Service can't be served, in a namespace with a name that no ASCII stream takes."""
    with stage() as made:
        made.write("s.yaml", service("web", {"port": 80, "protocol": "SCTP"}))
        yield made


def start(
    place: Path,
    terms: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], object] | None = None,
    stdout: int = subprocess.PIPE,
) -> Done:
    """Run a command in a process of its own, from `place`."""
    process = subprocess.Popen(
        [LOCALLB, *terms],
        cwd=place,
        env={**os.environ, "PYTHONUNBUFFERED": "", "PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=before,  # noqa: PLW1509 - nothing here has threads
    )
    out, err = process.communicate(timeout=SECONDS)
    assert "Traceback" not in f"{out}{err}"
    assert process.returncode in set(Exit), err
    return Done(process.returncode, out or "", err)


def on_terminal(place: Path, terms: Sequence[str], answer: bytes) -> Done:
    """Run a command on a terminal, and answer what it asks."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([LOCALLB, *terms], cwd=place, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    reported = b""
    try:
        while piece := os.read(ours, 4096):
            reported += piece
            if reported.endswith(b"[y/N] "):
                os.write(ours, answer)
    except OSError:  # how a terminal's end is told
        pass
    finally:
        os.close(ours)
    return Done(process.wait(SECONDS), reported.decode(), "")


@pytest.mark.parametrize("terms", SEARCHING, ids=" ".join)
def test_a_reader_that_has_had_enough_changes_nothing(play: Stage, terms: tuple[str, ...]) -> None:
    """`| head`: the pipe is closed before the first word; the code tells of the work."""
    expected = play.run(*terms).code
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = start(play.root, terms, stdout=writing)
        assert (done.code, done.out) == (expected, "")
        assert "pipe" not in done.err.lower()
    finally:
        os.close(writing)


def test_watch_without_a_reader_of_its_output_reports_it_and_ends(play: Stage) -> None:
    """Also where the reader is gone before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = start(play.root, ("watch", "--json"), stdout=writing)
    finally:
        os.close(writing)
    assert done.code == Exit.FAILED
    assert "standard output was closed" in done.err


def test_a_signal_at_the_very_end_comes_too_late() -> None:
    """What was done has its exit code, also while what is registered to run at exit is run."""
    program = (
        "import atexit, os, signal, sys\n"
        "from locallb.cli.process import finish, prepare\n"
        "prepare()\n"
        "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
        "    atexit.register(os.kill, os.getpid(), number)\n"
        "atexit.register(print, 'cleared away')\n"
        "sys.exit(finish(3))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=SECONDS, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "cleared away\n")


def test_a_failing_program_fails_where_exit_codes_are_thrown_away() -> None:
    """Some that start others ignore SIGCHLD, and whatever they start inherits that."""
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from locallb.cli.process import prepare\n"
        "prepare()\n"
        "from locallb.programs import Program\n"
        "sys.exit(Program(('/bin/sh', '-c', 'exit 3'), 60).run().code)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=SECONDS).returncode == 3


@pytest.mark.parametrize("terms", SEARCHING, ids=" ".join)
def test_results_that_cannot_be_written_are_reported(play: Stage, terms: tuple[str, ...]) -> None:
    """A full disk takes no results: the code is 1, one sentence says so."""
    with Path("/dev/full").open("w") as full:
        done = start(play.root, terms, stdout=full.fileno())
    assert done.code == Exit.FAILED
    assert "No space left on device" in done.err


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_streams_may_be_closed(play: Stage, closed: tuple[int, ...]) -> None:
    """No file of ours is taken for a stream; the command does its work."""

    def close() -> None:
        for number in closed:
            os.close(number)

    for terms in (("preview",), ("status",)):
        assert start(play.root, terms, before=close).code == Exit.OK


@pytest.mark.parametrize("environment", NARROW, ids=str)
def test_terminals_and_encodings_of_any_kind(play: Stage, environment: Mapping[str, str]) -> None:
    """What a stream can't take is written in another way."""
    for terms in (["preview"], ["--help"]):
        start(play.root, terms, environment=environment)


def test_a_directory_that_is_gone_is_reported(tmp_path: Path) -> None:
    """With what to do instead."""
    removed = tmp_path / "gone"
    removed.mkdir()
    done = start(removed, ["status"], before=removed.rmdir)
    assert (done.code, len(done.err.splitlines())) == (Exit.FAILED, 1)
    assert "-C DIR" in done.err


@pytest.mark.parametrize(
    ("limit", "least"), [(resource.RLIMIT_NOFILE, 24), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_AS, 1 << 27)]
)
def test_limits_that_leave_too_little_are_reported(play: Stage, limit: int, least: int) -> None:
    """Whether a library can't be loaded or a file not written: sentences."""
    for terms in (["status"], ["up", "--yes"]):
        start(play.root, terms, before=lambda: resource.setrlimit(limit, (least, least)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_waited_since_before_the_start_ends_it_at_once(play: Stage, number: signal.Signals) -> None:
    """However early it comes: one sentence, and 130."""

    def waiting() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])
        os.kill(os.getpid(), number)

    done = start(play.root, ["status"], before=waiting)
    assert (done.code, done.out) == (Exit.INTERRUPTED, "")
    assert done.err == "error: interrupted; run the command again to finish\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_was_ignored_stays_ignored(play: Stage, number: signal.Signals) -> None:
    """As nohup has it."""

    def ignored() -> None:
        signal.signal(number, signal.SIG_IGN)
        os.kill(os.getpid(), number)

    assert start(play.root, ["status"], before=ignored).code == Exit.OK


def test_signals_are_caught_before_anything_large_is_loaded() -> None:
    """Until then an interrupt shows Python's own traceback: no finder of an installation, no `re`, no `typing`."""
    script = "import sys; started = {*sys.modules}; import locallb.cli; print(*sorted({*sys.modules} - started))"
    command = [sys.executable, "-S", "-c", script]
    home = Path(locallb.__file__).parents[1]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=True)
    assert not {"re", "typing", "pathlib", "argparse", "contextlib"} & {*done.stdout.split()}
    finders = [finder for finder in sys.meta_path if "__editable__" in str(finder)]
    assert finders == [], "installed as an earlier version did it: `make setup`"


@pytest.mark.parametrize("terms", [["status"], ["preview"]], ids=" ".join)
def test_a_stack_of_manifests_loads_no_client_that_it_does_not_use(play: Stage, terms: list[str]) -> None:
    """Those of Docker and of Kubernetes take 0.1 s each."""
    script = (
        "import sys; from locallb.cli import main; main(sys.argv[1:]);"
        " print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, "-C", str(play.root), *terms]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    loaded = {*done.stderr.splitlines()[-1].split()}
    assert "locallb" in loaded
    assert not {"docker", "requests", "urllib3", "httpx2"} & loaded


def test_the_project_is_found_from_below(play: Stage) -> None:
    """As Git finds its repository."""
    below = play.root / "deep" / "down"
    below.mkdir(parents=True)
    assert start(below, ["status"]) == start(play.root, ["status"])
    assert nearest_project(below) == play.root.resolve()
    assert start(Path("/"), ["-C", str(below), "status"]) == start(play.root, ["status"])


@pytest.mark.root(only="can give files away")
@pytest.mark.parametrize("given", ["Pulumi.yaml", "__main__.py", "."])
def test_a_project_of_another_owner_is_not_found_from_below(play: Stage, given: str) -> None:
    """Its program would be run: whoever may write to a directory above ours must not decide what."""
    below = play.root / "deep"
    below.mkdir()
    os.chown(play.root / given, 65534, 65534)
    assert nearest_project(below) == below.resolve()
    assert nearest_project(play.root) == play.root.resolve()


@pytest.mark.root(only="can give links away")
def test_a_link_of_another_owner_makes_no_project(play: Stage, tmp_path: Path) -> None:
    """Whatever it leads to: a file of root's says nothing of the program that lies beside the link."""
    below = tmp_path / "deep"
    below.mkdir()
    (tmp_path / "Pulumi.yaml").symlink_to(play.root / "Pulumi.yaml")
    os.lchown(tmp_path / "Pulumi.yaml", 65534, 65534)
    assert nearest_project(below) == below.resolve()


def test_without_a_terminal_nothing_to_change_needs_no_question(play: Stage) -> None:
    """`up`, `destroy` and `refresh` ask only where there is something to ask about."""
    assert play.run("up", "--yes").code == Exit.OK
    for terms in (["up"], ["up", "--expect-no-changes"], ["up", "--json"]):
        done = start(play.root, terms)
        assert done.code == Exit.OK, terms
    assert start(play.root, ["up", "--json"]).json["changes"].keys() == {"same"}


def test_no_is_an_answer_and_not_an_error(play: Stage) -> None:
    """Also the end of the input (Ctrl-D); nothing was changed, and the code is 1."""
    for answer in (b"n\n", b"\n", b"\x04"):
        done = on_terminal(play.root, ["up"], answer)
        assert done.code == Exit.FAILED
        assert "Nothing was changed." in done.out
        assert "error" not in done.out
    assert not (play.root / ".state/.pulumi/stacks").exists()


def test_a_service_that_cannot_be_served_is_reported_once(play: Stage) -> None:
    """By `up --yes`, `preview`, `status` and by `up` that asks."""
    (row,) = play.run("status", "--json").json
    for terms in (["preview"], ["status"], ["up", "--yes"]):
        done = play.run(*terms)
        assert (done.out + done.err).count(row["message"]) == 1, terms
    play.run("destroy", "--yes")
    assert " ".join(on_terminal(play.root, ["up"], b"y\n").out.split()).count(row["message"]) == 1


def test_states_of_services_may_decide_the_exit_code(play: Stage) -> None:
    """`--fail-on rejected`: all is done, then 8 says that a Service isn't served."""
    assert play.run("up", "--yes", "--fail-on", "pending").code == Exit.OK
    done = play.run("up", "--yes", "--fail-on", "pending", "--fail-on", "rejected")
    assert done.code == Exit.UNSERVED
    assert "c/n/web is rejected" in done.err


@pytest.mark.envoy
def test_an_update_goes_on_when_its_reader_has_had_enough(play: Stage) -> None:
    """`up --yes | head -1`: everything is deployed, quietly."""
    with backends() as make:
        play.write("t.yaml", service("fine", {"port": 8080, "nodePort": make("fine").port}), node())
        reading, writing = os.pipe()
        os.close(reading)
        try:
            done = start(play.root, ["up", "--yes"], stdout=writing)
        finally:
            os.close(writing)
        assert done.code == Exit.OK
        assert "display" not in done.err
        assert "failed" not in done.err
        assert play.run("up", "--yes", "--expect-no-changes").code == Exit.OK
        assert play.status()["n/fine"]["state"] == "serving"


def test_a_watch_whose_lock_cannot_be_written_is_one_sentence(play: Stage) -> None:
    """As `up` says of a state that it can't write."""
    (play.root / ".state/locallb/dev~watch").mkdir(parents=True)
    done = start(play.root, ["watch"])
    assert (done.code, len(done.err.splitlines())) == (Exit.FAILED, 1)
    assert "dev~watch" in done.err


@pytest.mark.parametrize("room", [0, 512])
def test_a_project_that_could_not_be_written_whole_is_begun_again(tmp_path: Path, room: int) -> None:
    """As on a full disk: no part of it stays, which would be neither a project nor room for one."""
    place, terms = tmp_path / "mine", ("init", "-C", str(tmp_path / "mine"))
    limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (room, room))
    done = start(tmp_path, terms, environment={"PYTHONDONTWRITEBYTECODE": "1"}, before=limited)  # it would be cut short
    assert done.code == Exit.FAILED
    assert " can't be written: File too large; raise the limit of file sizes" in done.err
    assert not place.exists()
    assert start(tmp_path, terms).code == Exit.OK
