"""How alike two items are: kernels of features, of texts, of any objects, and of sums of these."""
