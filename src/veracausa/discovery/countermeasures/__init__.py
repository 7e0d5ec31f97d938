"""What may be done about the features that a target opens. None makes a discovery private; the audit says how far."""
