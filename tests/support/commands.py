"""The commands that tests run at any moment, and which of them change something, end never or only look.

None starts a program of the user's: `open` prints what it would open.
"""

CHANGING = (
    *(("up", "--yes"), ("up", "--yes", "--json"), ("destroy", "--yes"), ("refresh", "--yes"), ("gc", "--yes")),
    *(("fault", "web", "--refuse", "50%"), ("fault", "--undo"), ("drain", "web"), ("drain", "--undo")),
    *(("config", "set", "accessLogs", "false"), ("config", "unset", "accessLogs")),
)
ENDLESS = (("watch",), ("watch", "--json"), ("status", "--watch"), ("top",), ("logs",))
SEARCHING = (
    ("preview",), ("preview", "--format", "html"), ("preview", "--json"), ("status",), ("status", "web"), ("doctor",),
    ("gc",), ("state", "check"), ("stack", "list"), ("host", "status"), ("host", "setup"), ("init",), ("--help",),
    ("completion", "bash"), ("completion", "answer", "--", "up", "-t", ""), ("--version",), ("image", "-h"), ("up",),
    ("help",), ("help", "watch"), ("top", "--once"), ("status", "--traffic"),
    ("ca", "show"), ("ca", "export"), ("fault",), ("fault", "--json"), ("ca", "trust"), ("ca", "untrust"),
    ("drain",), ("drain", "--json"), ("open", "--print"), ("open", "--json"), ("open", "web", "--print"),
    ("wait", "web", "--timeout", "1s"), ("url", "web"), ("url", "--json"), ("curl", "web", "--json"),
    ("explain", "http://web.test/"), ("explain", "web.test", "--from", "manifests", "--json"),
    ("service", "status"), ("stack", "rm", "dev"), ("config", "list"), ("config", "get", "pools"), ("source", "list"),
    ("view",), ("page",), ("page", "--print", "--json"),
    ("gateway", "install-crds"), ("gateway", "install-crds", "--json"), ("plugin", "-h"),
)  # fmt: skip
WORDS = (*CHANGING * 3, *ENDLESS, *SEARCHING)
