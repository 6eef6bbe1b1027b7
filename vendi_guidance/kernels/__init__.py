"""How alike two items are."""
