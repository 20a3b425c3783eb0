"""What a resource type of ours consists of: its inputs and state, what it must answer, its declaration in a program.

`properties` and `declared` are made from the provider's schema. Not here: which types there are (`provider`).
"""
