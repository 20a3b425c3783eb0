"""Programs in this process: what they register by Pulumi's SDK becomes the desired resources of the core."""
