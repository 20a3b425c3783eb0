"""The provider as a plugin of the Pulumi CLI: `python -m locallb.provider <engine address>`.

The CLI of a checkout's own project runs this directory: `python locallb/provider <engine address>`.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # Python has put this directory first on its path; what belongs there is the one with the package
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from locallb.provider.plugin import main

main(sys.argv[1:])
