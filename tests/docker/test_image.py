"""Images that are made of a tar file: what they replace doesn't pile up, and what somebody uses or named stays."""

from __future__ import annotations

import secrets
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from locallb.model.identities import ContainerId, ImageName
from tests.support.containers import client, docker

pytestmark = pytest.mark.docker


@pytest.fixture
def name(image: str) -> Iterator[str]:
    """Return a name that no image has, and leave none with it."""
    del image
    repository = f"llb-test-{secrets.token_hex(4)}"
    yield f"{repository}:a"
    for tag in ("a", "b"):
        with suppress(subprocess.CalledProcessError):
            docker("image", "rm", f"{repository}:{tag}")


def made(root: Path, name: str) -> str:
    """Make another image of this name, and give its id."""
    path = root / secrets.token_hex(4)
    path.write_text(path.name)
    with tarfile.open(root / "root.tar", "w") as tar:
        tar.add(path, "file")
    return client().load(root / "root.tar", ImageName(name), ['ENTRYPOINT ["/file"]'])


def test_rebuilding_the_image_leaves_no_dangling_image(name: str, tmp_path: Path) -> None:
    """Each time it is made."""
    first, second = made(tmp_path, name), made(tmp_path, name)
    assert first != second
    assert client().has_image(ImageName(second))
    assert not client().has_image(ImageName(first))


@pytest.mark.parametrize("used", ["by a container", "under another name"])
def test_image_in_use_is_kept_when_its_name_is_replaced(name: str, tmp_path: Path, used: str) -> None:
    """The name is the new one's all the same."""
    first = made(tmp_path, name)
    container = ""
    if used == "by a container":
        container = client().create("", {"Image": first})
    else:
        docker("tag", first, name.replace(":a", ":b"))
    try:
        second = made(tmp_path, name)
        assert client().has_image(ImageName(first))
        assert docker("image", "inspect", "--format", "{{.Id}}", name).strip() == second
    finally:
        if container:
            client().remove(ContainerId(container), volumes=True)
            with suppress(subprocess.CalledProcessError):
                docker("image", "rm", first)
