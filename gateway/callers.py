"""Who asks. Set once per request by a wire's authentication, read where something is owned."""

from __future__ import annotations

from contextvars import ContextVar

import msgspec

ANYONE = "anonymous"
"""The owner of what is made without a key."""
ADMIN = "admin"
"""The owner of what an administrator made: the service's own, which outlives a change of the admin key."""


class Caller(msgspec.Struct, frozen=True):
    """One caller. `owner` names what is theirs; `admin` sees everything; `creates` may register models."""

    owner: str = ANYONE
    admin: bool = False
    creates: bool = False

    @property
    def key(self) -> str:
        """The hashed id of the caller's key, empty where keys are not asked for."""
        return "" if self.owner in (ANYONE, ADMIN) else self.owner

    def sees(self, owner: str, *, shared: bool) -> bool:
        """Whether something of `owner` exists for this caller; `shared` things of the administrator do for all."""
        return self.admin or owner == self.owner or (shared and owner == ADMIN)


NOBODY = Caller()
"""Who asks where nobody was asked for a key."""

current_caller: ContextVar[Caller] = ContextVar("polywire_caller")


def who_asks() -> Caller:
    """The caller of the request that is being served."""
    return current_caller.get(NOBODY)
