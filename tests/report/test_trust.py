"""A pull request doesn't decide what it is judged by, sees no file of the runner, and calls nobody in its report."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from locallb.report.wording import markdown_code, markdown_text, visible
from tests.support.manifests import node, port, service
from tests.support.repository import FORMATS, commit, report
from tests.support.stages import Stage

STRICT: dict[str, Any] = {"ports": [443], "sourceRanges": "required"}
WEAKER: dict[str, Any] = {
    "none": None,
    "another port": {"ports": [443, 8080], "sourceRanges": "required"},
    "open to everybody": {"ports": [443]},
}
HUSH = "hush-hush-0123456789"


def with_policies(repo: Stage, policies: dict[str, Any] | None) -> None:
    path = repo.root / "stacks/Pulumi.dev.yaml"
    document = yaml.safe_load(path.read_text())
    document["config"].pop("local-lb:policies", None)
    if policies is not None:
        document["config"]["local-lb:policies"] = policies
    path.write_text(yaml.safe_dump(document))


@pytest.mark.parametrize("policies", WEAKER.values(), ids=WEAKER.keys())
def test_policies_that_a_change_takes_away_count_for_that_change(repo: Stage, policies: dict[str, Any] | None) -> None:
    """The same exit code, and in every format the reason."""
    with_policies(repo, STRICT)
    commit(repo.root)
    before = repo.run("preview", "--against", "HEAD").code
    assert before > 0
    with_policies(repo, policies)
    found = report(repo, code=repo.run("preview", "--against", "HEAD").code)
    assert {violation["policy"] for violation in found["violations"]} == {"ports", "sourceRanges"}
    assert any("local-lb:policies" in notice for notice in found["notices"])
    for form in FORMATS:
        done = repo.run("preview", "--against", "HEAD", "--format", form)
        assert done.code in {11, 12}
        text = re.sub("[^a-z]+", " ", html.unescape(done.out + done.err))
        assert "change policies by themselves first" in text
        assert "which count as well" in text


def test_weaker_policies_alone_pass_where_nothing_violates_the_former(repo: Stage) -> None:
    """And stricter ones count at once."""
    with_policies(repo, {"ports": ["1-65535"]})
    commit(repo.root)
    with_policies(repo, None)
    assert repo.run("preview", "--against", "HEAD").code == 0
    with_policies(repo, {"ports": [1]})
    (sentence,) = {violation["message"].partition("(1)")[2] for violation in report(repo, code=12)["violations"]}
    assert "by themselves" not in sentence


def test_policies_of_an_old_side_whose_manifests_cannot_be_read_count(repo: Stage) -> None:
    """They are in another file."""
    with_policies(repo, STRICT)
    repo.write("broken.yaml")
    (repo.manifests / "broken.yaml").write_text("a: [1\n")
    commit(repo.root)
    (repo.manifests / "broken.yaml").unlink()
    with_policies(repo, None)
    assert repo.run("preview", "--against", "HEAD").code in {11, 12}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("where", ["file", "directory", "stack"])
def test_links_out_of_the_tree_show_nothing_of_where_they_lead(
    repo: Stage, tmp_path: Path, form: str, where: str
) -> None:
    """As a manifest, as the directory of manifests, as the stack's file; on either side."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a.yaml").write_text(f"{HUSH} and more")
    (secret / "b.yaml").write_text(yaml.safe_dump(service(HUSH, port(8080, 30080))))
    if where == "file":
        (repo.manifests / "x.yaml").symlink_to(secret / "a.yaml")
        (repo.manifests / "y.yaml").symlink_to(os.path.relpath(secret / "b.yaml", repo.manifests))
    elif where == "directory":
        repo.manifests.rename(repo.root / "before")
        repo.manifests.symlink_to(secret)
    else:
        (repo.root / "stacks/Pulumi.dev.yaml").unlink()
        (repo.root / "stacks/Pulumi.dev.yaml").symlink_to(secret / "a.yaml")
    for committed in (False, True):
        if committed:
            commit(repo.root)
        done = repo.run("preview", "--against", "HEAD", "--format", form)
        assert HUSH[:6] not in done.out + done.err


def test_a_link_to_a_manifest_of_the_same_directory_is_followed(repo: Stage) -> None:
    """On both sides; one that leads out is told."""
    (repo.manifests / "deep").mkdir()
    (repo.manifests / "deep/real.yaml").write_text(yaml.safe_dump(service("linked", port(8080, 30085))))
    (repo.manifests / "deep/real.yaml").rename(repo.manifests / "real.yaml")
    (repo.manifests / "deep/link.yaml").symlink_to("../real.yaml")
    (repo.manifests / "deep/out.yaml").symlink_to("/etc/hostname")
    found = report(repo)
    assert "linked" in {each["name"] for each in found["services"]}
    assert any("deep/out.yaml is a link out of its directory" in notice for notice in found["notices"])


def test_a_source_outside_the_repository_is_refused(repo: Stage, tmp_path: Path) -> None:
    """A revision says nothing about it."""
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(service(HUSH, port(8080, 30080))))
    path = repo.root / "stacks/Pulumi.dev.yaml"
    document = yaml.safe_load(path.read_text())
    document["config"]["local-lb:sources"] = [{"manifests": str(tmp_path), "name": "c"}]
    path.write_text(yaml.safe_dump(document))
    done = repo.run("preview", "--against", "HEAD")
    assert done.code == 1
    assert "lies outside the repository" in done.err
    assert HUSH not in done.out + done.err


def test_what_is_no_object_is_described_and_not_quoted(repo: Stage) -> None:
    """It may be any file."""
    (repo.manifests / "x.yaml").write_text(f"{HUSH}\n---\n12345678\n---\n[{HUSH}]\n")
    done = repo.run("preview", "--against", "HEAD", "--format", "json")
    assert {notice for notice in json.loads(done.out)["notices"] if "x.yaml" in notice} == {
        f"c: x.yaml has {what} where an object should be; it is passed over"
        for what in ("a list of 1 item", "a single value", "a text")
    }
    assert HUSH not in done.out


CALLS = {
    "GH-1": r"(?i)\bgh-\d",
    "gh-12": r"(?i)\bgh-\d",
    "JIRA-7": r"\b[A-Z]+-\d",
    "@user": r"@\w",
    "org/repo@1a2b3c4": r"@\w|\b[0-9a-f]{7,40}\b",
    "#1": r"#\d",
    "org/repo#1": r"#\d",
    "!5": r"!\d",
    "%3": r"%\d",
    "~bug": r"~\w",
    "&4": r"&\d",
    "$9": r"\$\d",
    "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d": r"\b[0-9a-f]{7,40}\b",
    "https://evil.example/a": r"://",
    "www.evil.example": r"www\.",
    "a@evil.example": r"@\w",
    "<a href=x>": r"(?<!&lt;)<a",
    "[a](b)": r"\]\(",
}


@pytest.mark.parametrize(("text", "link"), CALLS.items())
@pytest.mark.parametrize("made", [markdown_text, markdown_code], ids=lambda made: str(made.__name__))
def test_nothing_in_markdown_links_or_calls(made: Any, text: str, link: str) -> None:  # noqa: ANN401 - a function
    """Whatever a forge makes of it: neither as it is written, nor once references are characters."""
    written = made(f"see {text}, or so")
    assert not re.search(link, re.sub(r"&#\d+;", "\u200b", written))
    shown = html.unescape(re.sub("</?code>", "", written))
    assert shown.replace("\u200b", "") == f"see {text}, or so"
    if not text.startswith(("<", "[")):
        assert not re.search(link, shown)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60))
def test_a_reader_sees_the_text_itself(text: str) -> None:
    """All that is added has no width."""
    assert html.unescape(markdown_text(text)).replace("\u200b", "") == visible(text)


def test_no_line_commands_the_runner_of_a_job() -> None:
    """Old runners look for commands anywhere in a line."""
    assert "##[" not in visible("web ##[add-path]/tmp")
    assert "##[" not in visible("###[error]")


def test_names_are_data_in_the_example_of_a_job() -> None:
    """A step's output is a number; everything else goes by files."""
    text = (Path(__file__).parents[2] / "examples/ci/github-actions.yml").read_text()
    assert re.findall(r'echo "([^"]*)" >> "\$GITHUB_OUTPUT"', text) == ["code=$code"]
    assert node()["kind"] == "Node"
