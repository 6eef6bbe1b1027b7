"""Diffusers pipelines with diversity guidance, one per file, each usable on its own."""
