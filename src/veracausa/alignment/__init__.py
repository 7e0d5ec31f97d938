"""Which rows the parties have in common, found without showing each other their ids."""
