"""The package as a plugin of the Pulumi CLI: `python -m locallb.package <engine address>`."""

from locallb.package import main

main()
