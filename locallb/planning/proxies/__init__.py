"""Which proxy serves what, who shares one and what fits into it. Pure; not here: addresses, backends."""
