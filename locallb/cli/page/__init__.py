"""A live page of the stack, served by `watch` on the loopback to browsers of this host.

`guard` decides who is answered, `document` is the page itself, `lanes` and `rates` say what is on it, `feed` keeps it
and knows what each reader has yet to be told, and `live` brings them together beside the loop. Nothing of this is
loaded unless a place for the page is named, and nothing is drawn or asked while nobody looks.
"""
