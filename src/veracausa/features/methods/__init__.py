"""One file a feature map."""
