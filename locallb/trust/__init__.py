"""Trust stores of this host that may trust this user's own authority: the system's, Chromium's, Firefox's, a Mac's.

`plan` is pure: which stores must trust it, or no longer, and with which commands. `nss` and `system` read and change
stores, `stores` finds them. Not here: how an authority is made (`certificates`).
"""
