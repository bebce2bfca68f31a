"""The manager: what decides for all hosts, and needs no privileges."""
