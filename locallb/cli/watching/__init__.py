"""What observes the watch loop: log lines, a live view, metrics, health; it never influences the loop.

The loop emits events in its own thread; `board.Relay` takes them there in microseconds, and everything else happens
in other threads. All stored data is bounded by the number of Services or by a constant.
"""
