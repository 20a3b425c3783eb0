"""The comparison of two sides of a stack, for reviewers and gates: data and sentences, no rendering, no effects.

`sides` and `resources` make a side from a plan and from deployed resources; `changes` compares two of them, `exposure`
lists what became reachable, `room` what the pools have left, `policies` what the stack's configuration forbids.
`alerts` puts what matters into sentences. Not here: Markdown, HTML and JSON (the command line's part).
"""
