"""The models that a job can name: one file a family."""
