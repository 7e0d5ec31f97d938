"""Attacks of a party of a discovery on the columns behind the features that it opened: one file a family."""
