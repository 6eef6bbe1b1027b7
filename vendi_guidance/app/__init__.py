"""The page in the browser: one model, a session for each visitor."""
