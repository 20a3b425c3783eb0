"""What of a plan isn't so yet, and the updates that make it so: what is wanted, what differs, who goes with whom.

Told the plan, it decides what to update together and in which order. Not here: when (`watch.marks`), and what changed
although the plan is the same (`watch.troubles`).
"""
