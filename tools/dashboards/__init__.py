"""Grafana's dashboards, as code: `make dashboards` writes them to `manager/monitoring/dashboards`."""
