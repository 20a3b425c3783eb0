"""The kinds that a cluster may have, and what their absence means: found by asking for them."""
