"""What clients of every wire see when the service is told to stop."""
