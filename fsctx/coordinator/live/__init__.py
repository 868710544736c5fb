"""What `status --watch` shows on a terminal."""
