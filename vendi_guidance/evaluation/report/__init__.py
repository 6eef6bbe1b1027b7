"""Results as a page, text, data and figures."""
