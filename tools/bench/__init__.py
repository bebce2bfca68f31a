"""Benchmarks: each part yields figures that were measured against a reference in the same run."""
