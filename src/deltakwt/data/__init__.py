"""Speech data: Speech Commands folders, splits, manifests and downloads."""
