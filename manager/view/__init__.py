"""What people and programs are told of the fabric: plain data with stable keys, made from what the manager knows. No I/O."""
