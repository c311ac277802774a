"""What Polywire is measured beside: programs that somebody would write or install for the same job."""
