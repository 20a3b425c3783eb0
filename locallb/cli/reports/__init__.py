"""`locallb preview` for people who review changes: reports in Markdown, JSON and HTML, of two sides of a stack.

`live`, `against` and `pulumi_preview` get both sides (the state and the manifests, two revisions, the output of the
official command line), `command` prints the report and returns the exit code, and each format has a module. The content
of reports is in `locallb.report`.
"""
