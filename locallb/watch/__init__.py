"""The watch loop: what keeps a stack converged while it runs.

Triggers (clusters, files, processes, containers, time) mark what may have changed; `schedule` decides when to look and
what to try again, purely; `converge` plans and updates only what differs, by the engine's scopes. What happens is told
as `events`, to logs, metrics and the live view. Not here: what is planned, and how it is brought about.
"""
