"""Measures the running service. `make bench` prints the tables; docs and README quote them with their method."""
