"""`python -m locallb` is the command `locallb`."""

import sys

from locallb.cli import main

sys.exit(main())
