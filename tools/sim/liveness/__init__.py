"""Thousands of watched paths of one host, and links that fall silent."""
