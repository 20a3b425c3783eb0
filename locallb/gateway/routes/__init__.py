"""What routes come to: who is attached to whom, who is behind them, what a proxy serves for them."""
