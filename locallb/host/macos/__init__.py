"""What macOS has instead of local routes: aliases of lo0. Written from its manual; nobody has tried it on a Mac."""
