"""The race against other runtimes: the same weights, the same clips, one core, one run."""
