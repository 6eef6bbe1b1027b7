"""Disk formats: files that a crash cannot tear, pictures, runs, prompts."""
