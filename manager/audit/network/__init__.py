"""The network as an audit sees it: what the mesh knows, and what switches do to packets on their paths. Pure."""
