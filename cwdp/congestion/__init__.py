"""Congestion control at the sender: queue pairs whose packets wait in the fabric are paced until they do not."""
