"""The engine of discovery from sums: parties make functions of their columns, and only sums over rows are opened."""
