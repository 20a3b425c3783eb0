"""Routes: their attachment to listeners, their backends, and the HTTP configuration made of them."""
