"""Pulses over the watched paths, so that the dataplane leaves dead ones within milliseconds."""
