"""What a wheel has beside code, as `locallb/shipped/`: pages, examples, units, and what it is made of (CycloneDX).

Manual pages, made from the pages, are data of the installation: below `share/man`, where `man` finds them.

Its dependencies are those of requirements.txt; what nothing imports that serves is an extra.

All else stands in pyproject.toml.
"""

from __future__ import annotations

import json
import lzma
import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

DEFINITIONS = "locallb/gateway/gateway-api.json.xz"
EXTRAS = {"kubernetes": "pulumi_kubernetes"}
"""By extra, the package that only programs need which import `locallb.components.in_cluster`."""
SHIPPED = ("deploy", "docs", "examples", "README.md", "CHANGELOG.md")


class Shipping(build_py):
    """Copies them into the package; an editable installation has the checkout itself."""

    def run(self) -> None:
        """Build the packages, then add what they need."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "locallb", "shipped")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in SHIPPED:
            copy = shutil.copy if Path(name).is_file() else _copy_tree
            copy(name, target / name)
        (target / "sbom.cdx.json").write_text(_bill_of_materials(self.distribution.get_version()), encoding="utf-8")


class Manual(Distribution().get_command_class("install_data")):
    """Writes the manual pages."""

    def run(self) -> None:
        """Make them, and write each where it belongs."""
        man_pages = runpy.run_path("man_pages.py")["man_pages"]
        for path, text in man_pages(Path("docs"), self.distribution.get_version()).items():
            target = Path(self.install_dir, "share/man", path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            self.outfiles.append(str(target))


def _copy_tree(source: str, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "benchmarks", "design"))


def _bill_of_materials(version: str) -> str:
    """Return every dependency with its pinned version; without a date, so that builds stay equal."""
    pins = (line.partition(";")[0] for line in _requirements())
    pinned = sorted(tuple(pin.split("==")) for pin in pins)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", **_component("local-lb", version)}},
        "components": [*({"type": "library", **_component(name, of)} for name, of in pinned), _definitions()],
    }
    return json.dumps(document, indent=1) + "\n"


def _requirements() -> list[str]:
    lines = Path("requirements.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "==" in line and not line.startswith("#")]


def _definitions() -> dict[str, object]:
    """Return what is carried of Gateway API."""
    version = json.loads(lzma.decompress(Path(DEFINITIONS).read_bytes()))["version"]
    name = "sigs.k8s.io/gateway-api"
    purl = f"pkg:golang/{name}@{version}"
    licenses = [{"license": {"id": "Apache-2.0"}}]
    return {"type": "data", "bom-ref": purl, "name": name, "version": version, "purl": purl, "licenses": licenses}


def _component(name: str, version: str) -> dict[str, str]:
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    return {"bom-ref": purl, "name": name, "version": version, "purl": purl}


setup(
    cmdclass={"build_py": Shipping, "install_data": Manual},
    data_files=[("share/man", [])],
    install_requires=[line for line in _requirements() if line.partition("==")[0] not in EXTRAS.values()],
    extras_require={
        extra: [line for line in _requirements() if line.partition("==")[0] == name] for extra, name in EXTRAS.items()
    },
)
