"""Gateway API: its objects, who is bound to whom, and what that makes of each Gateway. Pure: no cluster is asked."""
