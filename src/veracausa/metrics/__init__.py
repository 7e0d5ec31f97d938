"""What an attack got, as numbers: pure functions, a value a sample."""
