"""Fake upstreams on loopback that write exact bytes."""
