"""The pages taken literally: each command is run or has a reason why not; options exist, links lead somewhere."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from locallb.cli.grammar import COMMANDS, make_parser
from locallb.config.parsing import parse_settings
from locallb.config.settings import SettingsError
from tests.docs.elsewhere import NOT_RUN_HERE, Elsewhere
from tests.support.pages import (
    CHECKOUT,
    PAGES,
    SESSIONS,
    SHELL,
    anchors,
    commands,
    fences,
    lines,
    links,
    misplaced,
    words_of_code,
)
from tests.support.stages import free_prefix

IDS = [str(page.relative_to(CHECKOUT)) for page in PAGES]
README = CHECKOUT / "README.md"


ALL = [(IDS[number], command) for number, page in enumerate(PAGES) for command in commands(page)]
BLOCKS = [
    (IDS[number], "\n".join(command for command in lines(fence) if command not in NOT_RUN_HERE))
    for number, page in enumerate(PAGES)
    for fence in fences(page)
    if fence.language == SHELL
]
RUN = [
    pytest.param(pasted, id=f"{page}: {pasted}", marks=[pytest.mark.envoy] if " up" in pasted else [])
    for page, pasted in BLOCKS
    if pasted and page not in SESSIONS
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a checkout of one's own with a second stack, at a commit called origin/main, `locallb` on PATH."""
    root = tmp_path / "local-lb"
    root.mkdir()
    for name in (
        "Pulumi.yaml",
        "__main__.py",
        "Makefile",
        "stacks",
        "examples",
        "deploy",
        "requirements.txt",
        "pyproject.toml",
    ):
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy
        copy(CHECKOUT / name, root / name)
    shutil.copy(CHECKOUT / "tests/report/data/pulumi-preview.json", root / "preview.json")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    monkeypatch.setenv("LOCALLB_LEDGER", str(tmp_path / "s/locallb/ledger"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("NAME", "EMAIL"):
        for party in ("AUTHOR", "COMMITTER"):
            monkeypatch.setenv(f"GIT_{party}_{name}", "a@example.com")
    (root / "stacks/Pulumi.mine.yaml").write_text(readmes_stack())
    shutil.copytree(root / "examples/shop/manifests", root / "my-services")
    shutil.copy(root / "examples/shop/nodes.yaml", root / "my-services/nodes.yaml")
    (root / ".state").mkdir()
    installed(tmp_path / "venv")
    (root / ".venv").symlink_to(tmp_path / "venv")  # one that make takes for somebody else's on purpose
    for terms in ("init -q", "add -A", "commit -q -m x", "update-ref refs/remotes/origin/main HEAD"):
        subprocess.run(["git", *terms.split()], cwd=root, check=True)
    yield root
    subprocess.run(["locallb", "destroy", "--yes", "--stack", "mine"], cwd=root, check=False, capture_output=True)


def readmes_stack() -> str:
    """Return the README's stack of manifests, with a pool of its own: others may serve from the default one."""
    text = next(fence.text for fence in fences(README) if "- manifests: my-services" in fence.text)
    return f"{text}  local-lb:pools: [{{name: default, addresses: [{free_prefix()}.0/27]}}]\n"


def installed(venv: Path) -> None:
    """Make what `make setup` has made, of the environment that runs this."""
    venv.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if entry.name not in {"runtime", "dev"}:
            (venv / entry.name).symlink_to(entry)
    (venv / "runtime").touch()


@pytest.mark.parametrize("pasted", RUN)
def test_a_block_of_the_pages_does_what_it_says_when_it_is_pasted(project: Path, pasted: str) -> None:
    """In one's own checkout it ends well, and says nothing on standard error; no command takes the next as input."""
    done = subprocess.run(
        ["bash", "-eo", "pipefail"],
        cwd=project,
        input=pasted,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_each_exempt_command_is_on_a_page_and_run_elsewhere_as_stated() -> None:
    """The file that runs it instead exists and contains its words."""
    shown = {command for _, command in ALL}
    for command, reason in NOT_RUN_HERE.items():
        assert command in shown, f"no page has {command!r} any more"
        if isinstance(reason, Elsewhere):
            assert reason.terms in (CHECKOUT / reason.file).read_text(encoding="utf-8"), command


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_block_with_commands_can_be_copied_whole(page: Path) -> None:
    """It has the shell's language, by which it is found here, and nothing that a shell wouldn't run."""
    assert {fence.language for fence in fences(page)} <= {"", "text", "yaml", "json", "python", "ts", SHELL}
    assert list(misplaced(page)) == []


@pytest.mark.parametrize(
    "block",
    [
        "```\nlocallb up\n```",
        "   ```text\n   sudo apt install x\n   ```",
        "~~~\nout\npipx install x\n~~~",
        "````\nuv x\n````",
        "```\n$ locallb up\n```",
        "```sh\n$ locallb up\n```",
        "```sh\nlocallb top --once  # now\n```",
        "```sh\ncurl http://127.77.0.1\nweb: hello\n```",
        "```sh\nlocallb up\nlocallb status\n```",
        "```sh\nsudo make\nmake up\n```",
        "```sh\nlocallb destroy\nmake down\n```",
    ],
)
def test_a_block_that_cannot_be_copied_is_found(tmp_path: Path, block: str) -> None:
    """Commands in another block, prompts, comments and output, and what would take the next line as its answer."""
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{block}\n")
    assert len(list(misplaced(page))) == 1


def test_a_command_of_several_lines_is_one(tmp_path: Path) -> None:
    """What it prints, in a block of its own, is none."""
    page = tmp_path / "page.md"
    typed = "   ```sh\n   locallb up \\\n       --yes\n   locallb status\n   ```\n"
    page.write_text(f"1. a\n{typed}   ```text\n   made\n   ```\n")
    assert list(commands(page)) == ["locallb up --yes", "locallb status"]
    assert list(misplaced(page)) == []


def test_the_reader_of_pages_finds_commands() -> None:
    """The reading of pages finds commands, or all of this would pass for nothing."""
    assert len(ALL) > 15
    assert len(RUN) >= 4


PLACEHOLDERS = {"COMMAND": "status", "STATE": "rejected", "ADDR:PORT": "127.0.0.1:9477"}
"""Words of a page for which any may stand, where it isn't any."""
OF_OTHERS = frozenset(
    {
        *("--ip-range", "--txt-owner-id", "--kill-whom=main", "--continue-on-error"),
        *("--enable-lb-port-mapping", "--lb-class", "--run-loadbalancer", "--loadbalancer-ip-range"),
        *("--loadbalancer-default-class=false", "--use-dynamic-base-id", "--hot-restart-version"),
        "--restart-epoch 1",
        "--disable-hot-restart",
    }
)
"""Options that the pages name: of Docker, Envoy, external-dns, systemd, Pulumi; of other load balancers."""
OF_BENCHMARKS = frozenset(
    {
        *("--profile", "--selector app=web", "--kubeconfig FILE", "--node-port-host ADDR,ADDR", "--image AGNHOST"),
        "--kubelets --command",
        "--deletions",
    }
)


def ours() -> Iterator[tuple[str, str]]:
    """Give every command line of ours in the pages, in blocks and in sentences, by its page."""
    for page, name in zip(PAGES, IDS, strict=True):
        for text in (*commands(page), *words_of_code(page)):
            for part in re.split(r"[|>]|&&", text):
                terms = part.strip().removeprefix("sudo ").removeprefix(".venv/bin/")
                if terms.startswith(("locallb ", "make ")):
                    yield name, terms


def filled(text: str) -> list[str]:
    """Put something in the place of each placeholder."""
    return [PLACEHOLDERS.get(word, word) for word in shlex.split(text) if word != "…"]


@pytest.mark.parametrize(("page", "command"), sorted(set(ours())))
def test_every_command_of_ours_is_understood(page: str, command: str) -> None:
    """`locallb` by its own parser, `make` by its Makefile; in sentences too."""
    program, *terms = filled(command)
    if program == "make":
        done = subprocess.run(["make", "-n", *terms], cwd=CHECKOUT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{page}: {done.stderr}"
        return
    with contextlib.suppress(SystemExit) if {"--help", "--version"} & set(terms) else contextlib.nullcontext():
        make_parser().parse_args(terms[: terms.index("--")] if "--" in terms else terms)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Return a parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                yield from parsers(choice)


@pytest.mark.parametrize(("page", "name"), list(zip(PAGES, IDS, strict=True)), ids=IDS)
def test_every_option_in_a_sentence_exists(page: Path, name: str) -> None:
    """Of our own command, or one of the few of others."""
    existing = {option for parser in parsers(make_parser()) for option in parser._option_string_actions}
    named = {text for text in words_of_code(page) if text.startswith("--")} - OF_OTHERS
    if name == "docs/benchmarks.md":
        named -= OF_BENCHMARKS
    assert {text for text in named if re.split(r"[ =]", text)[0] not in existing} == set()


def test_the_page_of_commands_lists_each_and_no_other() -> None:
    """In its first table."""
    section = (CHECKOUT / "docs/commands.md").read_text(encoding="utf-8").partition("\n\n")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = {word.split()[0] for cell in cells for word in re.findall(r"`([^`]+)`", cell)[:1]}
    assert listed == set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of the project, and there to a heading."""
    for link in links(page):
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(found), f"{page.name}: {link}"


CONFIGURATIONS = [
    pytest.param(fence.text, id=f"{page.name}-{number}")
    for page in PAGES
    for number, fence in enumerate(fences(page))
    if fence.language == "yaml" and "config:" in fence.text
]
CONFIGURATIONS += [
    pytest.param(path.read_text(encoding="utf-8"), id=path.name) for path in CHECKOUT.glob("examples/*/Pulumi.*.yaml")
]


SCHEMA = jsonschema_rs.Draft7Validator(json.loads((CHECKOUT / "docs/stack.schema.json").read_text()))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("htp3", True),
        ("http3", "yes"),
        ("runtime", "crio"),
        ("sources", {"kind": "all"}),
        ("sources", [{"kinds": "all"}]),
        ("pools", [{"name": "default"}]),
        ("ingress", True),
        ("policies", {"advisory": ["none"]}),
        ("pins", {"shop/web": "127.77.0.5"}),
    ],
)
def test_the_schema_of_a_stack_refuses_what_its_reader_refuses(key: str, value: object) -> None:
    """Also within lists and mappings."""
    settings = {"sources": [{"kind": "all"}], key: value}
    assert not SCHEMA.is_valid({"config": {f"local-lb:{name}": each for name, each in settings.items()}})
    with pytest.raises(SettingsError):
        parse_settings(settings)


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_every_configuration_of_the_pages_is_one(text: str) -> None:
    """Alone, or beside a source; editors say so, too, by the schema that `init` names."""
    assert SCHEMA.is_valid(yaml.safe_load(text))
    written = yaml.safe_load(text)["config"]
    settings = {key.removeprefix("local-lb:"): value for key, value in written.items()}
    assert all(key.startswith("local-lb:") for key in written)
    parse_settings({"sources": [{"kubernetes": {"name": "shop"}}], **settings})
