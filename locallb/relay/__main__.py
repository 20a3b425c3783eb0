"""Run a relay."""

import sys

from locallb.relay.process import main

sys.exit(main())
