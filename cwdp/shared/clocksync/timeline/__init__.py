"""Every host's clock over time, those that have changed unannounced included. The manager runs it."""
