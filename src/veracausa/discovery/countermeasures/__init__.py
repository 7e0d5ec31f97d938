"""What may be done about the features that a target opens. Neither makes a discovery private; the audit says how far."""
