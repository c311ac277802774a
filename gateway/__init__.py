"""What a streaming gateway is: events, requests, errors, ports and the rules between them.

Knows no vendor SDK, no web framework and no BentoML; `adapters/` and `wires/` import it, never the other way round.
"""
