"""The providers that the contract suite tests. A new provider joins with its entry here."""

from __future__ import annotations

from tests.contract import connector_entry, openai_entry, scripted_entry

ENTRIES = (scripted_entry.ENTRY, openai_entry.ENTRY, connector_entry.ENTRY)
