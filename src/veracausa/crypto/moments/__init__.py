"""Cross moments: sums over rows of products of two parties' features, opened as a whole to one receiver."""
