"""Causal discovery: one graph over the columns of one party or of many."""
