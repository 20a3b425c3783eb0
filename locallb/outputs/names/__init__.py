"""The output `names`: names in zones whose servers take updates."""
