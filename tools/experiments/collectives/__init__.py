"""Jobs of collectives on a lab, for experiments: who is in them (`jobs`), what iterations took, and their options."""
