"""This user's own authority and the certificates that it makes, for hosts without a Secret.

`local` is pure: which names, until when, by which authority. `store` makes certificates of bytes and
keeps the authority's files. Not here: requests for certificates (`gateway`), serving them, and trust (`trust_stores`).
"""
