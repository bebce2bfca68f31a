"""The service on each host: sends probes, fits edges, keeps the dataplane and its clock."""
