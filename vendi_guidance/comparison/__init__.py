"""Vendi guidance beside other ways to get different images of one prompt, on any model."""
