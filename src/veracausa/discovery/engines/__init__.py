"""The ways to run VFedCD: centralized in floating point, on two-party shares, on shares of all parties."""
