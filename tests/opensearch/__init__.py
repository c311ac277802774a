"""The ML Commons wire and registered models. Numbers in test names are the conformance cases of the contract."""
