"""Model files: folders, the registry of names, importers and downloads."""
