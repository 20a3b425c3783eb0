"""When the loop looks: what marks something as changed, how marks reach the loop's thread, and what is due when.

Not here: what a mark leads to (`watch.planner`, `watch.converging`).
"""
