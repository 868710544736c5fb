"""The engine that runs a user's application."""
