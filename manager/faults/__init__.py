"""From lost and late probes to the one link, NIC or host that explains them."""
