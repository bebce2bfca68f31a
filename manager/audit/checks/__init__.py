"""Checks and waivers, as TOML files hold them."""
