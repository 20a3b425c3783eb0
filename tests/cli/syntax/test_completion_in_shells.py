"""Completion in the shells themselves: each loads its script, a key is pressed, the line is what it should be."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from locallb.cli.completion import SCRIPTS
from locallb.cli.grammar import SHELLS
from tests.support.stages import Stage, stage

LOCALLB = Path(sys.executable).parent / "locallb"
LINES = [
    ("status --stack d", "status --stack dev"),
    ("doc", "doctor"),
    ("host setup --per", "host setup --persist"),
    ("init --manifests mani", "init --manifests manifests/"),
    ("nonsense ma", "nonsense manifests/"),
]
"""What is typed after the program's name, and what it becomes; what nobody knows is a file's name."""
TIMEOUT = 60.0
ZSHRC = """\
PS1='ready> '
autoload -Uz compinit
compinit -u -d {home}/dump
{script}
tell() {{ print -r -- "$BUFFER" >{home}/new; mv {home}/new {home}/told }}
zle -N tell
bindkey '^X' tell
"""


@pytest.fixture
def play() -> Iterator[Stage]:
    """Return a project, for its stack and its directories."""
    with stage() as made:
        (made.root / "__main__.py").unlink()  # nothing else begins with the letters that are typed
        yield made


def bash(play: Stage, line: str) -> str:
    """Complete a line as bash does where a function answers, and files where it has no answer."""
    terms = line.split(" ")
    ask = f"COMP_WORDS=({' '.join(terms)}); COMP_CWORD={len(terms) - 1}; _locallb {LOCALLB}"
    default = f"[ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- {terms[-1]})/)"
    script = f"{SCRIPTS['bash']}\n{ask}; {default}; echo ${{COMPREPLY[@]}}"
    return " ".join([*terms[:-1], reported(play, ["bash", "--norc", "-c", script])])


def fish(play: Stage, line: str) -> str:
    """Ask fish what it would complete the last word to."""
    script = f"{SCRIPTS['fish']}\ncomplete -C '{line}'"
    (answer,) = reported(play, ["fish", "--no-config", "-c", script]).splitlines()
    return " ".join([*line.split(" ")[:-1], answer])


def zsh(play: Stage, line: str) -> str:
    """Press Tab in a zsh on a terminal, and then a key that tells the line."""
    home = play.root / "zsh"
    home.mkdir()
    (home / ".zshrc").write_text(ZSHRC.format(home=home, script=SCRIPTS["zsh"]))
    ours, its = pty.openpty()
    command = ["zsh", "-i"]
    shell = subprocess.Popen(
        command, cwd=play.root, env=surroundings(play), stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    try:
        observed = b""
        while b"ready> " not in observed:
            observed += os.read(ours, 4096)
        os.write(ours, f"{line}\t\x18".encode())
        deadline = time.monotonic() + TIMEOUT
        while not (home / "told").exists():
            assert time.monotonic() < deadline, observed
            time.sleep(0.02)
        return (home / "told").read_text().strip()
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
        shutil.rmtree(home)


def reported(play: Stage, command: list[str]) -> str:
    """Run a shell in the project; return what it prints, once it has nothing to complain of."""
    done = subprocess.run(
        command, cwd=play.root, env=surroundings(play), capture_output=True, text=True, check=True, timeout=TIMEOUT
    )
    assert done.stderr == ""
    return done.stdout.strip()


def surroundings(play: Stage) -> dict[str, str]:
    """Return an environment in which no shell finds anything of its user's."""
    home = str(play.root / "zsh")
    return {"PATH": os.environ["PATH"], "HOME": home, "ZDOTDIR": home, "TERM": "vt100", "LC_ALL": "C.UTF-8"}


TYPED: dict[str, Callable[[Stage, str], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script_that_is_tested_here(play: Stage, shell: str) -> None:
    """Every shell has one."""
    assert play.run("completion", shell).out == SCRIPTS[shell] + "\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_works_in_each_real_shell(play: Stage, shell: str) -> None:
    """The whole way: the script asks the program by the path that was typed, the answer stands in the line."""
    if not shutil.which(shell):
        if os.environ.get("CI"):
            pytest.fail(f"there is no {shell} here; .ci/run installs it")
        pytest.skip(f"there is no {shell} here (Debian: apt install {shell})")
    assert [TYPED[shell](play, f"{LOCALLB} {typed}") for typed, _ in LINES] == [
        f"{LOCALLB} {line}" for _, line in LINES
    ]
