"""The web app: one model, and a session for each visitor."""
