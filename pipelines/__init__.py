"""Diffusers pipelines with diversity guidance, one a file, each usable on its own."""
