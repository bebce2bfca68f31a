"""The fabric at an instant, now or of the past, as arrays from which all pages are made. No I/O."""
