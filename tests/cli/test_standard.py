"""Which programs are the standard one, of which what they want is known without running them."""

from pathlib import Path

import pytest
import yaml

from locallb.cli.project import PROGRAM, is_standard
from locallb.cli.session import Session
from tests.support.stages import Stage

SOURCES = [{"manifests": "manifests", "name": "c"}]


@pytest.mark.parametrize(
    "text",
    [
        PROGRAM,
        PROGRAM.partition("\n\n")[2],
        f"# mine\n{PROGRAM}\n\n# the end\n",
        "'''serves'''\nfrom locallb.program import serve\n(reading,\n plan) = serve()  # all\n",
    ],
)
def test_a_program_with_other_comments_or_layout_is_the_standard_one(text: str, tmp_path: Path) -> None:
    """As a user or a formatter leaves it."""
    path = tmp_path / "__main__.py"
    path.write_text(text)
    assert is_standard(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "from locallb.program import serve\n",
        f"{PROGRAM}print(plan)\n",
        f"{PROGRAM}import components.mine\n",
        f"{PROGRAM}reading, plan = serve()\n",
        "from mine.program import serve\nreading, plan = serve()\n",
        "from locallb.program import serve\nreading, plan = serve(1)\n",
        "from locallb.program import serve\nplan, reading = serve()\n",
        "from locallb.program import serve\nserve()\n",
        "reading, plan = (\n",
        "\0",
        "(" * 100_000,
    ],
)
def test_a_program_that_says_anything_else_is_run(text: str, tmp_path: Path) -> None:
    """Or told to be wrong by what runs it."""
    path = tmp_path / "__main__.py"
    path.write_text(text)
    assert not is_standard(path)


def test_a_program_that_cannot_be_read_is_not_the_standard_one(tmp_path: Path) -> None:
    """It isn't there, is no file, or no text."""
    assert not is_standard(tmp_path / "none")
    assert not is_standard(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe" + PROGRAM.encode())
    assert not is_standard(tmp_path / "bytes")


@pytest.mark.checkout
def test_the_program_of_this_repository_is_the_standard_one() -> None:
    """What users begin with."""
    assert is_standard(Path(__file__).parents[2] / "__main__.py")


@pytest.mark.parametrize(
    ("of_project", "of_stack", "is_served"),
    [
        ({"local-lb:runtime": "process"}, {}, False),
        ({"local-lb:runtime": "process"}, {"local-lb:runtime": "process"}, False),
        ({"local-lb:sources": {"value": SOURCES}}, {}, True),
        ({"local-lb:sources": {"value": SOURCES}}, {"local-lb:sources": SOURCES}, True),
        ({}, {"local-lb:sources": SOURCES}, True),
    ],
)
def test_sources_of_the_project_are_those_of_a_stack_with_a_program_of_its_own(
    play: Stage, of_project: dict[str, object], of_stack: dict[str, object], *, is_served: bool
) -> None:
    """Until its program has said anything; defaults alone that the project declares configure nothing."""
    (play.root / "__main__.py").write_text("print()\n")
    file = play.root / "Pulumi.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "config": of_project}))
    (play.root / "stacks/Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": of_stack}))
    assert bool(Session.open(play.root, "dev").written_settings().sources) is is_served
