"""A model on several devices of one node: a process each, one behind the `Model` interface for all of them."""
