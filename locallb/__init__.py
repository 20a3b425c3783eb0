"""local-lb: an address of its own for every Kubernetes Service of type LoadBalancer on a local cluster."""

import sys

__version__ = "0.1.0"

if sys.platform == "win32":  # said before anything is loaded that Windows doesn't have
    raise SystemExit(
        "error: local-lb doesn't run on Windows itself, but in WSL2: `wsl --install`, install it there as on Linux, and"
        " have the stack say `local-lb:portMapping: loopback`; what it serves at 127.0.0.1 is localhost in Windows"
    )
