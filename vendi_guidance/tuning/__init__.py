"""A sweep of the dial: how images, their diversity and their fidelity change along it."""
