"""The core: one thread brings what a stack has to what is desired, and everything that may block runs in lanes."""
