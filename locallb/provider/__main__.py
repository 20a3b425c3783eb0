"""The provider as a plugin of the Pulumi CLI, which runs this directory: `python locallb/provider <engine address>`.

What is served is the whole package `locallb`, which is above this one.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

# Python puts this directory first on its path; what belongs there is the directory that holds the package.
sys.path[0] = str(Path(__file__).resolve().parents[2])

runpy.run_module("locallb.package", run_name="__main__")
