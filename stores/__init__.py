"""State that outlives a request: the stores behind the `Store` port."""
