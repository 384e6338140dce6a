"""The probes, one per file: measurement, numbers, table, and figure."""
