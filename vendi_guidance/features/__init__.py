"""Pictures and prompts in, features out."""
