"""Collectives as programs tell of them: which rank was last, and what it waited for."""
