"""The page that shows what a model computes, with the user's own models and recordings."""
