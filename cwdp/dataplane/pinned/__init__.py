"""The pinned maps of one interface: where they are, what is in them, typed access to their memory."""
