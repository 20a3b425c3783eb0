"""Gateway API's objects, frozen, as sources read them and `gateway` binds them."""
