"""The SageMaker wires: a model container (SageMaker, AgentCore), the runtime API as boto3 calls it, a Lambda URL."""

from __future__ import annotations

from wires.sagemaker.errors import CONTAINER, FUNCTION, RUNTIME
from wires.sagemaker.routes import router

__all__ = ["ROUTERS", "WIRES"]

WIRES = (CONTAINER, RUNTIME, FUNCTION)
ROUTERS = (router,)
