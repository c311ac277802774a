"""The matrix: every wire with its official client x every provider, six behaviours each. `make matrix` prints it."""
