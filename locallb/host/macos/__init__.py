"""macOS: aliases of lo0 in place of local routes. Written from its manual; untested on a Mac."""
