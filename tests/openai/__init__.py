"""The OpenAI wire, driven by the official SDKs and read as exact bytes."""
