"""The tests of Polywire."""
