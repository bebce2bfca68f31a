"""Automatic path migration of queue pairs over InfiniBand, as a leader orders it."""
