"""Prompt templates: reading, checking, rendering; no model in sight."""
