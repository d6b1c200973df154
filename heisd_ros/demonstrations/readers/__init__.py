"""Foreign recordings, read into this package's types; one file per format."""
