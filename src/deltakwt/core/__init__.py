"""The paper and its engine: configuration, settings, front end, algorithm, counts, model."""
