"""One sound explained: what was heard, which tokens were recomputed, what it cost."""
