"""What the parties of a discovery can read of each other's columns, attacked and measured."""
