"""`python -m locallb` is the command `locallb`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current directory, which may be anybody's: its modules would be taken for libraries

from locallb.cli import main

sys.exit(main())
