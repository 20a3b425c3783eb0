"""The watch loop, which keeps a stack converged while it runs.

Triggers (clusters, files, processes, containers, time) name what may have changed; `schedule` decides when to plan and
what to retry, purely; `converge` plans and updates only what differs, by the engine's scopes. Progress is reported as
`events`, to logs, metrics and the live view. Not here: what is planned, and how it is applied.
"""
