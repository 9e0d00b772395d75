"""Thresholds by budget: search, refinement a layer, proof on clips the search never saw."""
