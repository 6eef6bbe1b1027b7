"""Compares Vendi guidance with other ways to get diverse images of a prompt, on any model."""
