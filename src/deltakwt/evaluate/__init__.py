"""Accuracy, MACs and bytes of a model on clips; misses and false accepts on streams."""
