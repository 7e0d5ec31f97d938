"""VFedCD with encoder and decoders on shares of all parties: nothing about a single row is opened to anybody."""
