"""Guidance in diffusers: the callback, guided pipelines, and what they read of a call."""
