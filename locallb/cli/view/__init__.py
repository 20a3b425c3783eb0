"""The terminal view: load balancers as a list that is filtered, sorted and grouped, and all about one of them."""
