"""The algorithm: moves samples in flight away from one another and from what is remembered."""
