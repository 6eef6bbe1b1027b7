"""A finished batch in, results out."""
