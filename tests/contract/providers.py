"""The chat providers that the contract suite tests. A new provider joins with its entry here."""

from __future__ import annotations

from tests.contract import (
    aws_entries,
    connector_entry,
    local_entry,
    openai_entry,
    remote_entries,
    scripted_entry,
)

ENTRIES = (
    scripted_entry.ENTRY,
    openai_entry.ENTRY,
    local_entry.ENTRY,
    aws_entries.BEDROCK,
    *aws_entries.SAGEMAKER,
    remote_entries.REPLICATE,
    remote_entries.COG,
    remote_entries.OPENSEARCH,
    connector_entry.ENTRY,
)
