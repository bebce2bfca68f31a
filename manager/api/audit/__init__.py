"""Audits over HTTP and as metrics."""
