"""A causal graph from sums over rows alone: functions of columns at home, one release of sums, a search on the sums."""
