"""The source `manifests`: a directory of YAML and JSON files."""
