"""`locallb host setup`: the steps (pure), and their execution."""
