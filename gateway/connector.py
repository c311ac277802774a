"""What an ML Commons client registers: connectors (where a model is, and how to ask it) and models on top of them.

Field order is the order of ML Commons' own answers. `credential` is left out of every dump: `gateway/registered.py`
seals it beside the record.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PREDICT = "PREDICT"
INTERFACES = {"http": "openai/v1/chat/completions", "aws_sigv4": "bedrock/converse/claude"}
"""The `_llm_interface` that a connector of each protocol can stream."""


class Record(BaseModel):
    """Something registered. `credential` never leaves the process but encrypted."""

    model_config = ConfigDict(frozen=True)

    credential: dict[str, str] = Field(default_factory=dict, exclude=True, repr=False)


class Action(BaseModel):
    """One request that a connector can make; its strings are templates."""

    model_config = ConfigDict(frozen=True)

    action_type: str
    method: str
    url: str
    headers: dict[str, str] | None = None
    request_body: str | None = None
    pre_process_function: str | None = None
    post_process_function: str | None = None
    name: str | None = None
    supports_structured_output: bool | None = None


class Connector(Record):
    """How a remote model is asked. Times are in milliseconds, as everywhere in ML Commons."""

    name: str
    version: str
    description: str | None = None
    protocol: str
    parameters: dict[str, str] | None = None
    actions: tuple[Action, ...] | None = None
    backend_roles: list[str] | None = None
    access: str | None = None
    created_time: int | None = None
    last_updated_time: int | None = None
    client_config: dict[str, Any] | None = None
    provisioned_by: str | None = None

    def action(self, kind: str = PREDICT) -> Action | None:
        """The first action of `kind`."""
        return next((action for action in self.actions or () if action.action_type == kind), None)

    def patience(self) -> float | None:
        """Seconds of silence that `client_config.read_timeout` allows, None for the service's own limits."""
        seconds = (self.client_config or {}).get("read_timeout")
        return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None


ModelState = Literal["REGISTERED", "DEPLOYED", "UNDEPLOYED"]


class RegisteredModel(Record):
    """A remote model. `credential` belongs to an inline `connector`."""

    name: str
    model_group_id: str
    algorithm: str = "REMOTE"
    model_version: str = "1"
    description: str | None = None
    model_state: ModelState = "REGISTERED"
    deploy_setting: dict[str, Any] | None = None
    is_enabled: bool = True
    rate_limiter: dict[str, Any] | None = None
    created_time: int
    last_updated_time: int
    last_deployed_time: int | None = None
    last_undeployed_time: int | None = None
    auto_redeploy_retry_times: int | None = None
    planning_worker_node_count: int | None = None
    current_worker_node_count: int | None = None
    planning_worker_nodes: list[str] | None = None
    deploy_to_all_nodes: bool | None = None
    is_hidden: bool = False
    connector: Connector | None = None
    connector_id: str | None = None
    guardrails: dict[str, Any] | None = None
    interface: dict[str, Any] | None = None


class RegisterTask(Record):
    """What became of a registration or a deployment."""

    model_id: str
    task_type: Literal["REGISTER_MODEL", "DEPLOY_MODEL"]
    function_name: str = "REMOTE"
    state: Literal["COMPLETED", "FAILED"] = "COMPLETED"
    worker_node: list[str]
    create_time: int
    last_update_time: int
    is_async: bool = False
    error: str | None = None
