"""Published tables and figures by one command: an experiment file, its grid of cells, and what they add up to."""
