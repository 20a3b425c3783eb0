"""How the engine calls providers: handles, direct calls, event loops."""
