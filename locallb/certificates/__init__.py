"""This user's own authority and the certificates that it makes, for hosts without a Secret.

`local` is pure: which names, until when, by which authority. `signing` makes certificates of bytes, `store` keeps the
authority's files. Not here: who asks for a certificate (`gateway`), who serves it, who trusts it (`trust`).
"""
