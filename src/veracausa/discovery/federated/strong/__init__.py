"""VFedCD with encoder and decoders on shares of all parties: targets see predictions, and no features."""
