"""A live page of the stack, served by `watch` on the loopback to browsers of this host.

`drawing` makes its content. `server` controls access, keeps the content and each reader's pending updates, and serves
both in threads of its own. Nothing of this is loaded unless the
configuration or an option names an address for the page, and nothing is drawn or queried without readers.
"""
