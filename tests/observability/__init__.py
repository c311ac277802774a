"""What an operator sees of a request: its id, its log line, its counters, its trace."""
