"""Evaluation of finished batches: scores, confidence intervals and reports."""
