"""`/_plugins/_ml/models`: register, read, change, deploy, undeploy, delete and search models.

A row of polywire.yaml is a model too: it can be read and is always deployed, but only the file changes it.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from gateway.callers import who_asks
from gateway.connector import RegisteredModel, RegisterTask
from gateway.errors import NotFound, Unsupported
from gateway.registered import NODE_ID, Kept, Registered, deployed, new_id, now_ms
from gateway.trust import Trust
from wires.base import gateway_of
from wires.documents import fields, takes
from wires.opensearch.bodies import (
    answer,
    check_parameters,
    demand_creator,
    read_object,
    registered_of,
    search,
    source,
    written,
)
from wires.opensearch.errors import REFUSALS, illegal_argument, refused
from wires.opensearch.paths import ID
from wires.opensearch.schema import flag, optional_object, optional_text, own_id, parse_connector

INDEX = ".plugins-ml-model"
STARTED_AT = now_ms()
MODEL = fields("name", "function_name", name="string", function_name="string")
SOME = fields("model_ids", model_ids="array")
CHANGEABLE = ("deploy_setting", "guardrails", "interface")
router = APIRouter(
    prefix="/_plugins/_ml/models", tags=["OpenSearch"], dependencies=[Depends(check_parameters)], responses=REFUSALS
)


@router.post("/_register", openapi_extra=takes(MODEL))
@router.post("/_upload", openapi_extra=takes(MODEL))
async def register(request: Request) -> Response:
    """Register a remote model, and deploy it with `?deploy=true`."""
    demand_creator()
    registered = registered_of(request)
    body = await read_object(request)
    model = await _parse(request, registered, body)
    if request.query_params.get("deploy", "false") in ("", "true"):
        model = deployed(model)
    id = own_id(body, "model_id") or new_id()
    await registered.models.add(id, model, who_asks())
    task_id = await _add_task(registered, RegisterTask(model_id=id, task_type="REGISTER_MODEL", **_task_times()))
    return answer(request, {"task_id": task_id, "status": "CREATED", "model_id": id})


@router.api_route("/_search", methods=["GET", "POST"])
async def find(request: Request) -> Response:
    """Search the registered models that the caller may see."""
    return await search(request, INDEX, await registered_of(request).models.all(who_asks()))


@router.post("/_undeploy", openapi_extra=takes(SOME))
@router.post("/_unload", openapi_extra=takes(SOME))
async def undeploy_some(request: Request) -> Response:
    """Undeploy the models that the body lists."""
    demand_creator()
    ids = (await read_object(request)).get("model_ids")
    if not isinstance(ids, list) or not ids:
        raise illegal_argument("model_ids must list at least one model")
    registered = registered_of(request)
    stats = {str(id): await _undeploy(registered, str(id)) for id in ids}
    return answer(request, {NODE_ID: {"stats": stats}})


@router.post(ID + "/_deploy")
@router.post(ID + "/_load")
async def deploy(request: Request, id: str) -> Response:
    """Deploy a model."""
    demand_creator()
    registered = registered_of(request)
    if _configured(request, id) is None:
        kept = await _demand(registered, id, "Failed to find model")
        if kept.record.model_state != "DEPLOYED":
            await registered.models.change(kept, deployed(kept.record))
    task = RegisterTask(model_id=id, task_type="DEPLOY_MODEL", is_async=True, **_task_times())
    task_id = await _add_task(registered, task)
    return answer(request, {"task_id": task_id, "task_type": "DEPLOY_MODEL", "status": "COMPLETED"})


@router.post(ID + "/_undeploy")
@router.post(ID + "/_unload")
async def undeploy(request: Request, id: str) -> Response:
    """Undeploy a model; it can be deployed again."""
    demand_creator()
    _refuse_configured(request, id)
    return answer(request, {NODE_ID: {"stats": {id: await _undeploy(registered_of(request), id)}}})


@router.get(ID)
async def read(request: Request, id: str) -> Response:
    """One model, registered or configured."""
    configured = _configured(request, id)
    if configured is not None:
        return answer(request, source(configured))
    kept = await _demand(registered_of(request), id, f"Failed to find model with the provided model id: {id}")
    return answer(request, source(kept.record))


@router.put(ID, openapi_extra=takes(fields()))
async def change(request: Request, id: str) -> Response:
    """Change the fields that the body names."""
    demand_creator()
    _refuse_configured(request, id)
    registered = registered_of(request)
    body = await read_object(request)
    kept = await _demand(registered, id, f"Failed to find model with the provided model id: {id}")
    enabled = flag(body, "is_enabled", kept.record.is_enabled)
    _refuse_rate_limiter(body)
    changes: dict[str, Any] = {"last_updated_time": now_ms(), "is_enabled": enabled}
    changes |= {name: optional_object(body, name) for name in CHANGEABLE if name in body}
    changes |= {name: text for name in ("name", "description") if (text := optional_text(body, name)) is not None}
    if "connector_id" in body or "connector" in body:
        changes |= await _connection(request, registered, body)
    changed = await registered.models.change(kept, kept.record.model_copy(update=changes))
    return answer(request, written(INDEX, id, "updated", changed.version))


@router.delete(ID)
async def delete(request: Request, id: str) -> Response:
    """Delete a model that is not deployed."""
    demand_creator()
    _refuse_configured(request, id)
    registered = registered_of(request)
    kept = await _demand(registered, id, "Failed to find model")
    if kept.record.model_state == "DEPLOYED":
        raise refused("Model cannot be deleted in deploying or deployed state. Try undeploy model first then delete")
    await registered.models.remove(id)
    return answer(request, written(INDEX, id, "deleted", kept.version + 1))


async def _parse(request: Request, registered: Registered, body: dict[str, Any]) -> RegisteredModel:
    name = optional_text(body, "name")
    if name is None:
        raise illegal_argument("model name is null")
    function = str(body.get("function_name") or "").lower()
    if not function:
        raise illegal_argument("model format is null")
    if function != "remote":
        raise Unsupported(f"Only remote models are registered here; {function!r} would run on a cluster's own nodes.")
    _refuse_rate_limiter(body)
    group, version = await _group(registered, name, optional_text(body, "model_group_id"))
    now = now_ms()
    return RegisteredModel(
        name=name,
        model_group_id=group,
        model_version=version,
        description=optional_text(body, "description"),
        is_enabled=flag(body, "is_enabled", True),
        deploy_setting=optional_object(body, "deploy_setting"),
        guardrails=optional_object(body, "guardrails"),
        interface=optional_object(body, "interface"),
        created_time=now,
        last_updated_time=now,
        **await _connection(request, registered, body),
    )


async def _connection(request: Request, registered: Registered, body: dict[str, Any]) -> dict[str, Any]:
    """The fields that lead to the remote service: a connector's id, or a connector of the model's own."""
    connector_id = optional_text(body, "connector_id")
    if connector_id is not None:
        if await registered.connectors.get(connector_id, who_asks()) is None:
            raise NotFound(f"Failed to find connector:{connector_id}")
        return {"connector_id": connector_id, "connector": None, "credential": {}}
    inline = optional_object(body, "connector")
    if inline is None:
        raise illegal_argument("You must provide connector content when creating a remote model without connector id!")
    connector = parse_connector(inline, Trust(gateway_of(request).settings))
    return {"connector_id": None, "connector": connector, "credential": connector.credential}


def _refuse_rate_limiter(body: dict[str, Any]) -> None:
    """Raises Unsupported: a limit that is kept but not held would be worse than none."""
    if body.get("rate_limiter") is not None:
        raise Unsupported("rate_limiter is not supported; limits.streams and connectors.streams bound the service.")


async def _group(registered: Registered, name: str, given: str | None) -> tuple[str, str]:
    """The model's group and version: a second model of a name joins the first one's group."""
    same = [kept.record for kept in await registered.models.all(who_asks()) if kept.record.name == name]
    if not same:
        return given or new_id(), "1"
    return given or same[0].model_group_id, str(max(int(model.model_version) for model in same) + 1)


async def _undeploy(registered: Registered, id: str) -> str:
    kept = await registered.models.get(id, who_asks())
    if kept is None or kept.record.model_state != "DEPLOYED":
        return "not_found"
    now = now_ms()
    update = {"model_state": "UNDEPLOYED", "last_undeployed_time": now, "last_updated_time": now}
    update |= {"current_worker_node_count": 0, "planning_worker_node_count": 0, "planning_worker_nodes": []}
    await registered.models.change(kept, kept.record.model_copy(update=update))
    return "undeployed"


async def _demand(registered: Registered, id: str, otherwise: str) -> Kept[RegisteredModel]:
    kept = await registered.models.get(id, who_asks())
    if kept is None:
        raise NotFound(otherwise)
    return kept


async def _add_task(registered: Registered, task: RegisterTask) -> str:
    task_id = new_id()
    await registered.tasks.add(task_id, task, who_asks())
    return task_id


def _task_times() -> dict[str, Any]:
    now = now_ms()
    return {"worker_node": [NODE_ID], "create_time": now, "last_update_time": now}


def _configured(request: Request, id: str) -> RegisteredModel | None:
    """A row of polywire.yaml as a model of this wire."""
    row = next((row for row in gateway_of(request).models() if row.id == id), None)
    if row is None:
        return None
    record = RegisteredModel(
        name=row.id, model_group_id=row.provider, created_time=STARTED_AT, last_updated_time=STARTED_AT
    )
    return deployed(record) if row.kind == "chat" else record.model_copy(update={"algorithm": row.kind.upper()})


def _refuse_configured(request: Request, id: str) -> None:
    if _configured(request, id) is not None:
        raise refused(f"Model {id!r} is a row of polywire.yaml, which alone changes it.")
