"""All-reduces of OpenMPI over its TCP transport, between hosts of the lab."""
