"""From a stack's keys to its settings, with a sentence for each mistake. Pure; not here: which keys there are."""
