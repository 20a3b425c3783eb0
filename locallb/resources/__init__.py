"""The pieces of a resource type of ours: inputs and state, its interface, its declaration in a program."""
