"""The registered part of the catalog: connectors, models and tasks in the store, their credentials sealed.

Every look-up says who asks. What belongs to another key does not exist for this one; models that the administrator
registered are everybody's.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from gateway.callers import Caller
from gateway.checks import is_whole
from gateway.config import Settings
from gateway.connector import Connector, Record, RegisteredModel, RegisterTask
from gateway.errors import Conflict, Forbidden, InvalidRequest, NotFound
from gateway.ports import Document, Store
from gateway.vault import Vault

RecordT = TypeVar("RecordT", bound=Record)
PAGE = 500


@dataclass(frozen=True, slots=True)
class Kept(Generic[RecordT]):
    """A record as it lies in the store."""

    id: str
    record: RecordT
    owner: str
    version: int


class Shelf(Generic[RecordT]):
    """All records of one kind."""

    def __init__(self, store: Store, vault: Vault, kind: str, record: type[RecordT], *, shared: bool) -> None:
        self._store = store
        self._vault = vault
        self._kind = kind
        self._record = record
        self._shared = shared

    async def add(self, id: str, record: RecordT, caller: Caller) -> None:
        """Keep a new record for `caller`. Raises Conflict when the id is taken."""
        if await self._store.add(self._kind, id, await self._write(id, record), owner=caller.owner) is None:
            raise Conflict(f"The id {id!r} is taken.")

    async def get(self, id: str, caller: Caller) -> Kept[RecordT] | None:
        """A record, None when there is none for this caller."""
        document = await self._store.get(self._kind, id) if is_whole(id) else None
        if document is None or not caller.sees(document.owner, shared=self._shared):
            return None
        return await self._read(document)

    async def change(self, kept: Kept[RecordT], record: RecordT) -> Kept[RecordT]:
        """Keep `record` in place of `kept`. Raises Conflict when somebody was faster."""
        value = await self._write(kept.id, record)
        document = await self._store.replace(self._kind, kept.id, value, version=kept.version)
        if document is None:
            raise Conflict(f"The {self._kind} {kept.id!r} was changed by another request; read it and try again.")
        return replace(kept, record=record, version=document.version)

    async def remove(self, id: str) -> bool:
        """Forget a record."""
        return await self._store.delete(self._kind, id)

    async def all(self, caller: Caller) -> list[Kept[RecordT]]:
        """Every record of this caller, newest first."""
        found: list[Kept[RecordT]] = []
        before: str | None = None
        while True:
            page = await self._store.list(self._kind, owner=None, limit=PAGE, before=before)
            found += [await self._read(item) for item in page if caller.sees(item.owner, shared=self._shared)]
            if len(page) < PAGE:
                return found
            before = page[-1].key

    async def _write(self, id: str, record: RecordT) -> bytes:
        value: dict[str, Any] = {"record": record.model_dump(mode="json", exclude_none=True)}
        if record.credential:
            sealed = await self._vault.seal(json.dumps(record.credential).encode(), f"{self._kind}:{id}")
            value["sealed"] = base64.b64encode(sealed).decode()
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")

    async def _read(self, document: Document) -> Kept[RecordT]:
        value = json.loads(document.value)
        fields = value["record"]
        if sealed := value.get("sealed"):
            opened = await self._vault.open(base64.b64decode(sealed), f"{self._kind}:{document.key}")
            fields["credential"] = json.loads(opened)
        return Kept(document.key, self._record.model_validate(fields), document.owner, document.version)


class Registered:
    """What ML Commons clients registered in this service."""

    def __init__(self, store: Store, settings: Settings) -> None:
        vault = Vault(settings)
        self._enabled = settings.connectors.remote_inference_enabled
        self.connectors = Shelf(store, vault, "connector", Connector, shared=False)
        self.models = Shelf(store, vault, "model", RegisteredModel, shared=True)
        self.tasks = Shelf(store, vault, "task", RegisterTask, shared=True)

    async def open(self, model_id: str, caller: Caller) -> Connector | None:
        """The connector of a model that may be asked now, None when there is no such model for this caller.

        A model that was never deployed is deployed by its first use. Raises Forbidden or InvalidRequest.
        """
        kept = await self.models.get(model_id, caller)
        if kept is None:
            return None
        model = kept.record
        if not self._enabled:
            raise InvalidRequest(REMOTE_INFERENCE_OFF, code="remote_inference_disabled")
        if not model.is_enabled:
            raise Forbidden("Model is disabled.")
        if model.model_state != "DEPLOYED":
            if (model.deploy_setting or {}).get("is_auto_deploy_enabled") is False:
                raise InvalidRequest(
                    f"Auto deployment disabled for this model, please deploy model first Model ID: {model_id}",
                    code="not_deployed",
                )
            # Two first uses at once: the other one has deployed it.
            with suppress(Conflict):
                await self.models.change(kept, deployed(model))
        return await self.connector_of(model, kept.owner)

    async def connector_of(self, model: RegisteredModel, owner: str) -> Connector:
        """The connector that `model` uses, whoever asks: its owner could use it when the model was registered.

        Raises NotFound when it is gone.
        """
        if model.connector is not None:
            return model.connector.model_copy(update={"credential": model.credential})
        connector = await self.connectors.get(model.connector_id or "", Caller(owner, admin=True))
        if connector is None:
            raise NotFound(f"Failed to find connector:{model.connector_id}")
        return connector.record


REMOTE_INFERENCE_OFF = (
    "Remote Inference is currently disabled. To enable it, update the setting "
    '"plugins.ml_commons.remote_inference_enabled" to true.'
)


def deployed(model: RegisteredModel) -> RegisteredModel:
    """`model` as it is once deployed: on this node, the only one."""
    now = now_ms()
    return model.model_copy(
        update={
            "model_state": "DEPLOYED",
            "last_deployed_time": now,
            "last_updated_time": now,
            "planning_worker_node_count": 1,
            "current_worker_node_count": 1,
            "planning_worker_nodes": [NODE_ID],
            "deploy_to_all_nodes": True,
        }
    )


NODE_ID = "polywire-node-000001"


def new_id() -> str:
    """An id as OpenSearch makes them: 20 URL-safe characters. It begins with a letter or digit, for command lines."""
    while not (id := base64.urlsafe_b64encode(secrets.token_bytes(15)).decode())[0].isalnum():
        pass
    return id


def now_ms() -> int:
    """Now, in milliseconds."""
    return time.time_ns() // 1_000_000
