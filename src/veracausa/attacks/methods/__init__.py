"""The attacks, by what they read: rows behind payloads, labels behind gradients, columns behind opened features."""
