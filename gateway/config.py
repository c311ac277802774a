"""Settings: environment over polywire.yaml over defaults. The only reader of the environment in Polywire.

Secrets are named in the file and come from the environment; they never leave this module but as `SecretStr` or through
`ProviderRow.api_key`. An empty variable counts as unset, since a container image may declare one without a value.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.config_errors import ConfigError, Sources, explain, refuse_at, refuse_doubles
from gateway.connector_settings import ConnectorSettings, RegularExpression
from gateway.limits import Limits as Limits  # part of these settings

Kind = Literal["chat", "speech", "transcription"]
Dialect = Literal["openai", "tgi", "lmi"]
ProviderType = Literal["local", "openai", "bedrock", "sagemaker", "polly", "replicate", "cog", "opensearch", "scripted"]
CONNECTOR = "connector"
"""The name and type of the one provider that a file cannot have: the models that ML Commons clients register."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ProviderRow(_Strict):
    """One row of `providers:`. Which fields a type needs is said by its adapter's docstring.

    `first_event_seconds` and `idle_seconds` override the limits of the same name for this provider;
    `retries` counts further attempts before the first event; `connections` bounds the open upstream connections.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    type: Literal[ProviderType, "connector"]
    base_url: str | None = None
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    dialect: Dialect | None = None
    path: Path | None = None
    open: bool = False
    api_key_env: str | None = None
    username_env: str | None = None
    password_env: str | None = None
    ca_file: Path | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    first_event_seconds: float | None = Field(default=None, gt=0)
    idle_seconds: float | None = Field(default=None, gt=0)
    retries: int = Field(default=1, ge=0, le=10)
    connections: int = Field(default=1000, ge=1)

    @field_validator("base_url", "endpoint_url")
    @classmethod
    def _is_http(cls, url: str | None) -> str | None:
        if url is not None and not url.lower().startswith(("http://", "https://")):
            raise ValueError("it must begin with http:// or https://, as http://127.0.0.1:8000/v1 does")
        return url

    @property
    def api_key(self) -> str | None:
        """The key named by `api_key_env`, None when there is none."""
        return _environment(self.api_key_env)

    @property
    def basic(self) -> tuple[str, str] | None:
        """User name and password named by `username_env` and `password_env`, None when either is missing."""
        username, password = _environment(self.username_env), _environment(self.password_env)
        return (username, password) if username and password else None

    def scrub(self, text: str) -> str:
        """`text` without this row's secrets, for messages that quote an upstream."""
        secrets = [self.api_key, _environment(self.password_env)]
        for secret in secrets:
            if secret:
                text = text.replace(secret, "[secret]")
        return text


class ModelRow(_Strict):
    """One row of `models:`: a public model id and where it leads. `voice` is a speech model's default voice.

    `served_model` is the name that a container behind a SageMaker endpoint wants to hear (vLLM checks it).
    """

    id: str = Field(min_length=1)
    provider: str
    upstream: str
    kind: Kind = "chat"
    dialect: Dialect | None = None
    voice: str | None = None
    served_model: str | None = None

    @cached_property
    def options(self) -> dict[str, Any]:
        """What an adapter may want to know of this row (`ChatRequest.options`)."""
        return self.model_dump(include={"dialect", "voice", "served_model"}, exclude_none=True)


class LocalSettings(_Strict):
    """The embedded models. `gguf` None is the shipped chat model; `threads` 0 chooses by the number of cores."""

    gguf: Path | None = None
    slots: int = Field(default=4, ge=1)
    context: int = Field(default=2048, ge=128)
    threads: int = Field(default=0, ge=0)
    warm: bool = True


class LambdaSettings(_Strict):
    """The Lambda function URL wire."""

    require_sha256: bool = False


class WebhookSettings(_Strict):
    """Where a prediction's webhooks may go: nowhere until a pattern trusts the target's whole URL."""

    trusted_endpoints: tuple[RegularExpression, ...] = ()
    allow_loopback: bool = False


DEFAULT_PROVIDERS = (ProviderRow(name="local", type="local"),)
DEFAULT_MODELS = (
    ModelRow(id="default", provider="local", upstream="chat"),
    ModelRow(id="polywire/chat", provider="local", upstream="chat"),
    ModelRow(id="tgi", provider="local", upstream="chat"),
    ModelRow(id="voice", provider="local", upstream="speech", kind="speech"),
    ModelRow(id="transcriber", provider="local", upstream="transcription", kind="transcription"),
)


def _named(variable: str) -> Any:
    """A field that has its own environment variable beside the `POLYWIRE__...` form."""
    name = variable.removeprefix("POLYWIRE_").lower()
    return AliasChoices(name, variable, f"POLYWIRE__{name.upper()}")


class Settings(BaseSettings):
    """All settings. `Settings.load()` reads them; the constructor takes them as keyword arguments (tests)."""

    model_config = SettingsConfigDict(
        env_prefix="POLYWIRE__",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
    )

    providers: tuple[ProviderRow, ...] = DEFAULT_PROVIDERS
    models: tuple[ModelRow, ...] = DEFAULT_MODELS
    limits: Limits = Limits()
    local: LocalSettings = LocalSettings()
    connectors: ConnectorSettings = ConnectorSettings()
    webhooks: WebhookSettings = WebhookSettings()
    webhook_secret: SecretStr | None = Field(default=None, validation_alias=_named("POLYWIRE_WEBHOOK_SECRET"))
    public_url: str | None = Field(default=None, validation_alias=_named("POLYWIRE_PUBLIC_URL"), pattern=r"^https?://")
    function_url: LambdaSettings = Field(
        default=LambdaSettings(), validation_alias=AliasChoices("lambda", "function_url", "POLYWIRE__LAMBDA")
    )
    origins: tuple[str, ...] = ()
    workers: int = Field(default=1, ge=1)
    replicas: int = Field(default=1, ge=1)
    """How many services share the work. More than one need a store that all of them reach."""
    grpc_port: int = Field(default=9400, ge=0, le=65535, validation_alias=_named("POLYWIRE_GRPC_PORT"))
    grpc_host: str = Field(default="0.0.0.0", validation_alias=_named("POLYWIRE_GRPC_HOST"))  # noqa: S104 - keys guard it
    store: str = Field(default="sqlite:///polywire.db", validation_alias=_named("POLYWIRE_STORE"), repr=False)
    store_key: SecretStr | None = Field(default=None, validation_alias=_named("POLYWIRE_STORE_KEY"))
    auth: Literal["keys", "none"] = Field(default="keys", validation_alias=_named("POLYWIRE_AUTH"))
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(), validation_alias=_named("POLYWIRE_API_KEYS")
    )
    admin_key: SecretStr | None = Field(default=None, validation_alias=_named("POLYWIRE_ADMIN_KEY"))

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(key.strip() for key in value.split(",") if key.strip())
        return value

    @model_validator(mode="after")
    def _names_resolve(self) -> Self:
        names = [row.name for row in self.providers]
        _refuse_doubles("providers", "name", names)
        _refuse_doubles("models", "id", [row.id for row in self.models])
        for number, provider in enumerate(self.providers):
            for field in ("name", "type"):
                if getattr(provider, field) == CONNECTOR:
                    refuse_at(("providers", number, field), f"{CONNECTOR!r} means registered models; it is no row's")
        for number, model in enumerate(self.models):
            if model.provider not in names:
                if "models" not in self.model_fields_set:
                    refuse_at(("models",), "is missing: without it, models are those of a provider row named 'local'")
                known = ", ".join(names) or "none"
                refuse_at(
                    ("models", number, "provider"),
                    f"model {model.id!r} names provider {model.provider!r}; the providers are {known}",
                )
        return self

    @model_validator(mode="after")
    def _replicas_share_a_store(self) -> Self:
        if self.replicas > 1 and self.store.startswith("sqlite:"):
            refuse_at(
                ("replicas",),
                f"{self.replicas} replicas need a store that all of them reach, and an SQLite file is one machine's: "
                "set POLYWIRE_STORE (store:) to a Redis, such as 'redis://redis:6379/0'",
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings

    @classmethod
    def load(cls, path: Path | None = None) -> Settings:
        """Read the file `path` (default: POLYWIRE_CONFIG, else polywire.yaml if it is there) and the environment.

        Raises ConfigError, with the file's line, when something is wrong.
        """
        named = path or _environment_path()
        file = named or Path("polywire.yaml")
        if not file.exists():
            if named:
                raise ConfigError(
                    f"There is no configuration file {str(file)!r}; set POLYWIRE_CONFIG to one that exists."
                )
            return _validated({}, "", "the environment")
        text = file.read_text(encoding="utf-8")
        try:
            values = yaml.safe_load(text) or {}
            refuse_doubles(text, str(file))
        except yaml.YAMLError as error:
            raise ConfigError(f"{file} is not valid YAML: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError(f"{file} must be a mapping with keys such as 'providers' and 'models'.")
        return _validated(values, text, str(file))


def _validated(values: dict[str, Any], text: str, source: str) -> Settings:
    try:
        return Settings(**values)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        raise ConfigError(explain(problems, Sources(text, source, os.environ), _sections())) from None


def _sections() -> dict[str, type[BaseModel]]:
    return {
        "": Settings,
        "providers": ProviderRow,
        "models": ModelRow,
        "limits": Limits,
        "local": LocalSettings,
        "lambda": LambdaSettings,
        "connectors": ConnectorSettings,
        "webhooks": WebhookSettings,
    }


def _refuse_doubles(section: str, field: str, names: list[str]) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            refuse_at((section, number, field), f"{section} names {name!r} more than once")


def _environment(variable: str | None) -> str | None:
    return (os.environ.get(variable) or None) if variable else None


def _environment_path() -> Path | None:
    value = _environment("POLYWIRE_CONFIG")
    return Path(value) if value else None
