"""What switches do to a packet on its path, hop by hop: for an audit."""
