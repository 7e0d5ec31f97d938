"""Published tables of causal discovery: a data set, a method, graphs and seeds make a cell."""
