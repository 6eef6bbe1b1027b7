"""Features in, numbers out."""
