"""Marks: notes that something may have changed, their queue, and the schedule that says what is due when.

Not here: what a mark leads to (`watch.planner`, `watch.converging`).
"""
