"""The embedded engine: transformers and torch, which nothing outside of this package imports."""
