"""The demo: some hundred claims, two agents of which one is killed, and every claim has one verdict all the same."""
