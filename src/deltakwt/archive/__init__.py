"""Search of an archive: the words in very many files, on all cores or on a Ray cluster."""
