"""Facts of a host for an audit, read and not judged; nothing is changed, and nothing is sent."""
