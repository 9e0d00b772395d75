"""The benchmark: the same weights and clips in our core and in other runtimes, on one core."""
