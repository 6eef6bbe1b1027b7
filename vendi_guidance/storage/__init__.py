"""Disk formats: crash-safe files, images, runs, prompts, tensors."""
