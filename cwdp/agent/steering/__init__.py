"""Brings the NICs to what the manager wants: steering, detours and slices."""
