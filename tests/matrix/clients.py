"""The rows of the matrix. A new wire joins with its entry here."""

from __future__ import annotations

from tests.matrix import openai_clients, opensearch_clients, sagemaker_clients, speech_clients, text_clients

CLIENTS = (
    *text_clients.CLIENTS,
    *openai_clients.CLIENTS,
    *opensearch_clients.CLIENTS,
    *sagemaker_clients.CLIENTS,
    *speech_clients.CLIENTS,
)
