"""`locallb preview` for people who review changes: reports in Markdown, JSON and HTML, of two sides of a stack.

`live`, `against` and `pulumi_preview` get both sides (the state and the manifests, two revisions, what the official
command line printed), `command` tells them and gives the exit code, each format is a module of its own. What a report
says is decided in `locallb.report`.
"""
