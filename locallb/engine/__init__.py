"""An embedded deployment engine for Pulumi programs in Python: no CLI, no plugins, no sockets.

It runs a program in this process, brings providers' resources to what it declares, and keeps the official command
line's state file. It does what a program of this kind needs, exactly as the command line, and refuses the rest by name.
It knows Pulumi's protocol and nothing about what the resources are.
"""
