"""The contract suites: every provider, wire and store joins its suite by one entry."""
