"""The provider as a plugin of the Pulumi CLI, which runs this directory: `python locallb/provider <engine address>`."""

from __future__ import annotations

import sys
from pathlib import Path

# Python puts this directory first on its path; what belongs there is the directory that holds the package.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from locallb.provider.plugin import main  # noqa: E402 - found by the path set above

main(sys.argv[1:])
