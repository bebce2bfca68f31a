"""Commands on the devices of this host; some go by way of the manager to another host's."""
