"""One file a defense. `causshield` is a package of its own."""
