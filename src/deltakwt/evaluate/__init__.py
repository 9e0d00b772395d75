"""Accuracy, MACs and stored bytes of a model on clips."""
