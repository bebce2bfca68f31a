"""Connections over InfiniBand that take another path while they send, by automatic path migration; see README.md."""
