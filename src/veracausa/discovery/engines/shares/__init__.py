"""VFedCD across parties: shares of the encoder, decoders at home, a validator that sees strengths only."""
