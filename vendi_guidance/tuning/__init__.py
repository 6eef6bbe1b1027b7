"""Settings that suit a model: more diversity at a floor of faithfulness."""
