"""Data: Speech Commands, decoded audio, rooms, sources, synthetic speech and downloads."""
