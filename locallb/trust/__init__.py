"""Who on this host believes this user's own authority: the system, Chromium, Firefox, a Mac's keychain.

`plan` is pure: which stores shall believe it, or no longer, and with which commands. `nss` and `system` look at stores
and change them, `stores` finds those that there are. Not here: how an authority is made (`certificates`).
"""
