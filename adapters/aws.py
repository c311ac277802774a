"""The one AWS transport: botocore finds credentials, region and endpoint and signs; aiohttp sends and reads.

No thread is held by a stream. The credential chain (files, STS, IMDS, SSO) blocks, so it runs in a worker thread, and
only when credentials are first needed or due for a refresh. Row: region, endpoint_url, profile, ca_file, connections,
and api_key_env where the service takes bearer tokens (Bedrock).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import aiohttp
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials, RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, NoRegionError, ProfileNotFound
from botocore.loaders import Loader, create_loader
from botocore.session import Session
from botocore.utils import get_token_from_environment
from yarl import URL

from adapters.aws_failures import aws_failure, error_code, json_object
from adapters.event_stream import Frame, FrameDecoder
from adapters.http import HttpUpstream, retry_after
from adapters.shortcut import ChatBursts, ChatShortcut
from gateway.config import ProviderRow
from gateway.errors import GatewayError, UpstreamError
from gateway.events import Delta

Service = Literal["bedrock-runtime", "sagemaker-runtime", "polly"]

EVENT_STREAM = "application/vnd.amazon.eventstream"
BEARER_SERVICES = frozenset({"bedrock"})
ACCOUNT_ID = re.compile(r"(?<![0-9])[0-9]{12}(?![0-9])")
SHORTEST_SECRET = 8
"""Characters. Anything shorter would blank out ordinary words of a message."""

# botocore writes canonical requests, session token included, into its debug log.
logging.getLogger("botocore").setLevel(logging.INFO)


@dataclass(frozen=True, slots=True)
class Account:
    """Where and as whom a service is called. A `str` is a bearer token."""

    endpoint: str
    region: str
    signing_name: str
    ca_file: Path | None
    identity: Credentials | str


class AwsUpstream:
    """One AWS service as one provider row sees it. Built without network, credentials or a running loop."""

    def __init__(self, row: ProviderRow, service: Service) -> None:
        self._row = row
        self._service = service
        self._looking = asyncio.Lock()
        self._reached: tuple[Account, HttpUpstream] | None = None
        self._secrets: tuple[str, ...] = ()

    async def read(
        self,
        shortcut: ChatShortcut,
        path: str,
        body: bytes,
        decode: Callable[[Frame], Iterable[Delta]],
        headers: Mapping[str, str] | None = None,
    ) -> ChatBursts:
        """POST `body` and yield what `decode` makes of the event frames of each read of the answer, to its end.

        Raises GatewayError, as frames say too.
        """
        frames = FrameDecoder(self._row.name)

        def decoded(piece: bytes) -> Iterator[Delta]:
            for frame in frames.feed(piece):
                if frame.kind != "event":
                    raise self._frame_failure(frame)
                yield from decode(frame)

        async with self.post(path, body, headers) as response:
            self.demand_type(response, EVENT_STREAM)
            with shortcut.read(response, decoded) as bursts:
                async for burst in bursts:
                    yield burst
            frames.end()

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sign and send a POST of JSON to the percent-encoded `path`; leaving the block closes the connection."""
        account, http = await self._reach()
        head = {"Content-Type": "application/json", **(headers or {})}
        request = AWSRequest("POST", account.endpoint + path, data=body, headers=head)
        await self._sign(account, request)
        # botocore signs neither of these, and a compressed answer would be held back by its decompressor.
        sent = {**request.headers, "Accept-Encoding": "identity"}
        # A plain string would be decoded and encoded anew: `%3A` becomes `:`, another path than the signed one.
        url = URL(request.url, encoded=True)
        async with http.send("POST", url, body=body, headers=sent) as response:
            yield response

    def demand_type(self, response: aiohttp.ClientResponse, wanted: str) -> None:
        """Raises UpstreamError for a 200 answer that is something else, such as a proxy's page."""
        if not response.content_type.startswith(wanted):
            raise UpstreamError(
                f"Provider {self._row.name!r} answered with {response.content_type!r}, not {wanted!r}; "
                "check its endpoint_url.",
                provider=self._row.name,
            )

    async def aclose(self) -> None:
        """Close the session and its idle connections."""
        if self._reached is not None:
            await self._reached[1].aclose()

    async def _reach(self) -> tuple[Account, HttpUpstream]:
        if self._reached is None:
            async with self._looking:
                if self._reached is None:
                    account = await asyncio.to_thread(_find_account, self._row, self._service)
                    http = HttpUpstream(
                        self._row, account.endpoint, ca_file=account.ca_file, explain=self._answer_failure
                    )
                    self._reached = account, http
        return self._reached

    async def _sign(self, account: Account, request: AWSRequest) -> None:
        if isinstance(account.identity, str):
            self._secrets = (account.identity,)
            request.headers["Authorization"] = f"Bearer {account.identity}"
            return
        frozen = await self._frozen(account.identity)
        self._secrets = tuple(filter(None, (frozen.access_key, frozen.secret_key, frozen.token)))
        SigV4Auth(frozen, account.signing_name, account.region).add_auth(request)

    async def _frozen(self, credentials: Credentials) -> ReadOnlyCredentials:
        try:
            if isinstance(credentials, RefreshableCredentials) and credentials.refresh_needed():
                return await asyncio.to_thread(credentials.get_frozen_credentials)
            return credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise _configuration(
                self._row, f"could not refresh its AWS credentials ({type(error).__name__})"
            ) from error

    def _answer_failure(self, row: ProviderRow, response: aiohttp.ClientResponse, body: bytes) -> GatewayError:
        value = self._scrubbed(json_object(body))
        code = error_code(response.headers.get("x-amzn-errortype"), value)
        return aws_failure(row, code, value, status=response.status, retry_after=retry_after(response.headers))

    def _frame_failure(self, frame: Frame) -> GatewayError:
        said = {"message": frame.payload.decode("utf-8", "replace")} if frame.kind == "error" else None
        return aws_failure(self._row, frame.name, self._scrubbed(said or json_object(frame.payload)))

    def _scrubbed(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """An error's fields without our secrets and account number."""
        return {key: self._scrub(value) if isinstance(value, str) else value for key, value in body.items()}

    def _scrub(self, text: str) -> str:
        for secret in self._secrets:
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, "[secret]")
        return ACCOUNT_ID.sub("[account]", text)


def _find_account(row: ProviderRow, service: Service) -> Account:
    """Blocking: ask botocore's configuration and credential chains. Raises UpstreamError saying what to set."""
    try:
        session = Session(profile=row.profile)
        if row.region:
            session.set_config_variable("region", row.region)
        session.register_component("data_loader", _data_loader(session.get_config_variable("data_path")))
        client = session.create_client(service, endpoint_url=row.endpoint_url)
        meta = client.meta
        client.close()
        signing_name = meta.service_model.signing_name
        identity = _bearer(row, signing_name) or session.get_credentials()
        ca_file = row.ca_file or session.get_config_variable("ca_bundle")
    except NoRegionError as error:
        raise _configuration(row, "has no AWS region; set region in its row, or AWS_REGION") from error
    except ProfileNotFound as error:
        raise _configuration(row, f"names the AWS profile {row.profile!r}, which does not exist") from error
    except (BotoCoreError, ClientError) as error:
        raise _configuration(row, f"has no usable AWS configuration ({type(error).__name__})") from error
    except ValueError as error:
        raise _configuration(row, "has an endpoint_url that is not a URL") from error
    if isinstance(identity, str) and not meta.endpoint_url.startswith("https:"):
        raise _configuration(row, "would send its bearer token unencrypted; its endpoint_url must be https")
    if identity is None:
        raise _configuration(
            row, "found no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role"
        )
    endpoint = meta.endpoint_url.rstrip("/")
    return Account(endpoint, meta.region_name, signing_name, Path(ca_file) if ca_file else None, identity)


@lru_cache
def _data_loader(data_path: str | None) -> Loader:
    """AWS's own tables, a megabyte of JSON that every session would parse anew."""
    return create_loader(data_path)


def _bearer(row: ProviderRow, signing_name: str) -> str | None:
    """A bearer token goes before credentials, as in boto3."""
    if signing_name not in BEARER_SERVICES:
        return None
    return row.api_key or get_token_from_environment(signing_name) or None


def _configuration(row: ProviderRow, what: str) -> UpstreamError:
    return UpstreamError(f"Provider {row.name!r} {what}.", provider=row.name, code="provider_credentials")
