"""What is known of the fabric: its nodes, its links, and which of them each path crosses."""
