"""What a discovery's readers may learn of one row, and what each party is told of the graph."""
