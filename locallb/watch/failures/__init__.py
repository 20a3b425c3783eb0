"""Damage although the plan is the same: outages of proxies, files and objects that others changed.

Not here: how it is repaired (`watch.converging`).
"""
