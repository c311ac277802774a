"""Files: what a voice said, by capability URL. Uploads are not stored; clients send small files inline."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.errors import NotFound, Unsupported
from gateway.prediction import Status
from wires.documents import answers
from wires.replicate.errors import REFUSALS
from wires.replicate.output import wav_file
from wires.replicate.streams import CORS, predictions_of

router = APIRouter(tags=["Replicate"], responses=REFUSALS)


@router.get("/v1/files/{token}", response_class=Response, responses=answers("audio/wav"))
async def get_file(request: Request, token: str) -> Response:
    """The audio of a prediction that has succeeded."""
    prediction = await predictions_of(request).with_token(token)
    if prediction is None or prediction.kind != "speech" or prediction.status is not Status.SUCCEEDED:
        raise NotFound("There is no such file; files are forgotten with their prediction.")
    audio = await asyncio.to_thread(wav_file, await predictions_of(request).recorded(prediction))
    return Response(audio, media_type="audio/wav", headers=CORS | {"cache-control": "private, max-age=3600"})


@router.post("/v1/files", include_in_schema=False)
async def upload_file() -> Response:
    """Status 501, at which the JavaScript client sends the file inline by itself; a 4xx would make it give up."""
    raise Unsupported(
        "Files are not stored here; send them inline as data URLs (in Python: file_encoding_strategy='base64').",
        status=501,
    )
