"""Where a public model id leads, and what is read from there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.config import CONNECTOR, ModelRow, ProviderRow
from gateway.connector import Connector
from gateway.patience import Patience


@dataclass(frozen=True, slots=True)
class Target:
    """Where a public model id leads. `voice` is the voice part of a speech id such as `voice/heart`.

    A registered model leads through its `connector`.
    """

    model: ModelRow
    provider: ProviderRow
    voice: str | None = None
    connector: Connector | None = None

    @property
    def options(self) -> Mapping[str, Any]:
        """What the adapter needs to know beside the request (`ChatRequest.options`)."""
        options = self.model.options
        return options if self.connector is None else {**options, CONNECTOR: self.connector}


@dataclass(frozen=True, slots=True)
class Plan:
    """One stream that may begin: what it is read from, and how many tokens it may use."""

    target: Target
    source: Callable[[], AsyncGenerator[Any, None]]
    tokens: int = 0
    patience: Patience | None = None
