"""The comparison of two sides of a stack, for reviewers and gates: data and sentences, no rendering, no effects.

`sides` and `deployed` make a side from a plan and from deployed resources; `changes` compares two of them, and lists
what became reachable and the pools' room, `policies` what the stack's configuration forbids. `wording` makes sentences,
`document`, `html` and `markdown` formats.
"""
