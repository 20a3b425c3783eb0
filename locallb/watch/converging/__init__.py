"""Converging: the differences between a plan and the applied state, and the updates that remove them.

Given the plan, it decides what to update together and in which order. Not here: when (`watch.marks`), and what changed
although the plan is the same (`watch.failures`).
"""
