"""The three error shapes of the SageMaker wires: TGI's (container), the runtime API's, and a Lambda function URL's."""

from __future__ import annotations

import re

from starlette.responses import JSONResponse, Response

from gateway.errors import GatewayError, InvalidRequest
from wires.base import Wire, retry_headers
from wires.documents import fields, refusals
from wires.sagemaker.encoders import error_body

RUNTIME_TYPES = {
    401: ("UnrecognizedClientException", 403),
    403: ("AccessDeniedException", 403),
    404: ("ValidationError", 404),
    429: ("ThrottlingException", 429),
    500: ("InternalFailure", 500),
    502: ("ModelError", 424),
    503: ("ServiceUnavailable", 503),
    504: ("ModelError", 424),
}
FUNCTION_TYPES = {401: "AccessDeniedException", 403: "InvalidSignatureException", 429: "TooManyRequestsException"}


def container_error(error: GatewayError) -> Response:
    """TGI's answer: what is wrong with the input is 422 there."""
    status = 422 if isinstance(error, InvalidRequest) and error.status == 400 else error.status
    return JSONResponse(error_body(error), status_code=status, headers=retry_headers(error))


def runtime_error(error: GatewayError) -> Response:
    """What AWS SDKs read: the type in a header, the message in the body."""
    kind, status = RUNTIME_TYPES.get(error.status, ("ValidationError", error.status))
    body: dict[str, object] = {"Message": error.message}
    if kind == "ModelError":
        body |= {"OriginalStatusCode": error.status, "OriginalMessage": error.message, "LogStreamArn": ""}
    return JSONResponse(body, status_code=status, headers={"x-amzn-errortype": kind, **retry_headers(error)})


def function_error(error: GatewayError) -> Response:
    """A Lambda function URL's answer."""
    kind = FUNCTION_TYPES.get(error.status, "ValidationException" if error.status < 500 else "ServiceException")
    return JSONResponse(
        {"message": error.message, "type": kind}, status_code=error.status, headers=retry_headers(error)
    )


CONTAINER_REFUSALS = refusals(fields("error", "error_type", error="string", error_type="string"))
RUNTIME_REFUSALS = refusals(fields("Message", Message="string"))
FUNCTION_REFUSALS = refusals(fields("message", "type", message="string", type="string"))
CONTAINER = Wire("sagemaker", re.compile(r"/ping|/invocations.*"), container_error)
RUNTIME = Wire("sagemaker_runtime", re.compile(r"/endpoints/.*"), runtime_error)
FUNCTION = Wire("lambda", re.compile(r"/lambda(/.*)?"), function_error)
