"""Every setting of the server, in one dataclass; the engine's are in `yaie.core.config`.

A value comes from the first of: a flag, the environment (`YAIE_QUEUE_TIMEOUT=30`), the default here.
Imports neither torch nor the web framework, because the command line reads it.
"""

import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from yaie.core.compat import Self
from yaie.core.errors import ConfigError
from yaie.core.settings import check_types, from_environment, require, setting
from yaie.core.variables import known_variables, refuse_misspelled
from yaie.server.listen import is_loopback, name_in

SERVER, LIMITS, ACCESS, LOGS = "Server", "Limits", "Access", "Logs"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Immutable; checked on construction. `ConfigError` names the setting and the fix."""

    # A service called "yaie" makes Kubernetes put a YAIE_PORT of its own into the environment.
    host: str = setting(
        "127.0.0.1", "Address to listen on; 0.0.0.0 for all networks.", panel=SERVER, env=False
    )
    port: int = setting(8000, "Port to listen on; 0 takes a free one.", panel=SERVER, env=False)
    served_model_name: str | None = setting(
        None, "What clients call the model; its own name if not given.", panel=SERVER
    )
    tool_parser: Literal[
        "auto", "hermes", "qwen3_coder", "llama3", "mistral", "deepseek_v3", "deepseek_v31", "none"
    ] = setting(
        "auto", "How the model writes tool calls; auto goes by its chat template.", panel=SERVER
    )
    reasoning_parser: Literal["auto", "think", "mistral", "none"] = setting(
        "auto", "How the model writes its reasoning; auto goes by its template.", panel=SERVER
    )
    strict: bool = setting(
        False,
        "Refuse what else would be ignored or lowered: unknown fields, tools that a server would run, "
        "and a max_tokens that the context cannot hold.",
        panel=SERVER,
    )
    drain_seconds: float = setting(
        30.0, "After a signal, how long running requests may take.", panel=SERVER
    )
    engine_process: bool | None = setting(
        None, "The engine in a process of its own; if not given, from 4 CPUs on.", panel=SERVER
    )
    role: Literal["both", "prefill", "decode"] = setting(
        "both",
        "prefill computes prompts for a server of role decode, which goes on from their KV blocks.",
        panel=SERVER,
    )
    handover: str | None = setting(
        None,
        "Where prefill listens and decode asks: a Unix socket's path, or HOST:PORT between hosts.",
        panel=SERVER,
    )
    handover_tokens: int = setting(
        64, "decode computes a prompt itself that lacks fewer tokens in its cache.", panel=SERVER
    )
    handover_key_file: str | None = setting(
        None, "A file with a secret that both must know to hand blocks over.", panel=SERVER
    )
    web: bool = setting(
        True, "The page at /, on which to chat and to watch the engine.", panel=SERVER
    )
    xray: bool | None = setting(
        None,
        "Show the engine's steps, and with them every request; if not given, only where the server "
        "listens on this machine alone and asks for no key.",
        panel=SERVER,
    )
    step: bool = setting(
        False,
        "Compute a step only when the page says so; nothing times out.",
        panel=SERVER,
        env=False,
    )
    ssl_certfile: str | None = setting(
        None, "Certificate (PEM); with it the server speaks HTTPS.", panel=SERVER
    )
    ssl_keyfile: str | None = setting(
        None, "Its private key (PEM), if the certificate's file does not hold it.", panel=SERVER
    )

    step_timeout: float = setting(
        300.0,
        "Seconds after which a step counts as hung and the process ends; 0 is never.",
        panel=LIMITS,
    )
    queue_timeout: float = setting(
        0.0, "Seconds that a request may wait for its first turn; 0 is no limit.", panel=LIMITS
    )
    request_timeout: float = setting(
        0.0, "Seconds that a request may take in all; 0 is no limit.", panel=LIMITS
    )
    step_seconds: float = setting(
        0.05,
        "On a CPU, about how many seconds a step may take that computes prompts while other requests "
        "generate; 0 is no limit.",
        panel=LIMITS,
    )
    max_body_bytes: int = setting(16 * 2**20, "Size of a request's body, at most.", panel=LIMITS)
    max_concurrent_requests: int = setting(
        4096, "HTTP requests in progress, at most; more are refused with 503.", panel=LIMITS
    )

    max_connections: int = setting(
        16384, "Open connections, at most; fewer if the system allows fewer files.", panel=LIMITS
    )
    receive_timeout: float = setting(
        60.0, "Seconds that a client may take to send a request.", panel=LIMITS
    )

    api_key: tuple[str, ...] = setting(
        (), "A key that clients must show; repeatable.", panel=ACCESS, repr=False
    )
    api_key_file: str | None = setting(
        None, "A file with such keys, one a line; `ps` does not show them.", panel=ACCESS
    )
    tenant_keys: bool = setting(
        False, "Requests of different keys share no cached prefix of a prompt.", panel=ACCESS
    )
    allowed_origins: tuple[str, ...] = setting(
        (), "A web page's origin that may call (CORS); repeatable, * is any.", panel=ACCESS
    )

    allowed_host: tuple[str, ...] = setting(
        (),
        "A name by which clients reach the server, beside addresses and localhost; * is any.",
        panel=ACCESS,
    )

    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "Least important messages to log.", panel=LOGS
    )
    log_file: str | None = setting(None, "Log to this file as well as to the terminal.", panel=LOGS)
    log_json: bool = setting(False, "One JSON object for each line of the log.", panel=LOGS)

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("drain_seconds", "step_timeout", "queue_timeout", "request_timeout",
                     "receive_timeout", "step_seconds"):  # fmt: skip
            value = getattr(self, name)
            require(0 <= value < float("inf"), name, "must be 0 or more seconds", value)
        require(
            self.receive_timeout > 0, "receive_timeout", "must be above 0", self.receive_timeout
        )
        for name in ("max_body_bytes", "max_concurrent_requests", "max_connections"):
            require(getattr(self, name) >= 1, name, "must be at least 1", getattr(self, name))
        require(0 <= self.port <= 65535, "port", "must be between 0 and 65535", self.port)
        require(self.served_model_name != "", "served_model_name", "must not be empty", "")
        for key in self.api_key:  # a header could not carry another
            if not key.isascii() or not key.isprintable() or key.strip() != key or not key:
                raise ConfigError(
                    "api_key must be printable ASCII characters, without spaces around them",
                    param="api_key",
                )
        for origin in self.allowed_origins:
            is_origin = origin == "*" or ("://" in origin and not origin.endswith("/"))
            require(
                is_origin, "allowed_origins", "must be * or like https://example.org:8080", origin
            )
        for host in self.allowed_host:
            is_name = host == "*" or name_in(host) is not None
            require(is_name, "allowed_host", "must be * or a name such as yaie.example.org", host)
        self._check_files()
        self._check_role()
        self._check_xray()
        self._check_tenants()

    def _check_tenants(self) -> None:
        if not self.tenant_keys:
            return
        if not self.api_key:
            raise ConfigError(
                "tenant_keys has no effect without keys: add api_key or api_key_file",
                param="tenant_keys",
            )
        if self.shows_xray:
            raise ConfigError(
                "tenant_keys does not go with xray, which shows every key all requests",
                param="xray",
            )
        if self.role != "both":
            raise ConfigError(
                f"tenant_keys does not go with role {self.role!r}: blocks are handed over to all alike",
                param="tenant_keys",
            )

    def _check_role(self) -> None:
        least = self.handover_tokens
        require(least >= 1, "handover_tokens", "must be at least 1", least)
        for name in ("handover", "handover_key_file"):
            if self.role == "both" and (given := getattr(self, name)) is not None:
                raise ConfigError(
                    f"{name} {given!r} has no effect here: add role 'prefill' or 'decode'",
                    param=name,
                )
        if self.role != "both" and not self.handover:
            raise ConfigError(
                f"role {self.role!r} needs handover, a socket's path or HOST:PORT, the same for both",
                param="handover",
            )
        if (
            self.role != "decode"
            and least != type(self).__dataclass_fields__["handover_tokens"].default
        ):
            raise ConfigError(
                f"handover_tokens {least} has no effect here: it is for role 'decode'",
                param="handover_tokens",
            )
        if self.role != "both" and self.step:
            raise ConfigError(
                f"step does not go with role {self.role!r}: the other server would wait",
                param="step",
            )

    def _check_xray(self) -> None:
        if self.xray and not self.web:
            raise ConfigError("xray has no effect without the page: leave out no-web", param="xray")
        if self.step and not self.shows_xray:
            raise ConfigError(
                "step needs the X-ray, which says when to compute a step: add --xray"
                + (" and leave out --no-web" if not self.web else ""),
                param="step",
            )

    def _check_files(self) -> None:
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ConfigError("ssl_keyfile needs ssl_certfile beside it", param="ssl_certfile")
        for name in ("ssl_certfile", "ssl_keyfile"):
            path = getattr(self, name)
            require(path is None or Path(path).is_file(), name, "must be a file", path)

    @classmethod
    def load(
        cls, given: Mapping[str, Any] | None = None, *, environ: Mapping[str, str] | None = None
    ) -> Self:
        """Merge the sources, the keys in `api_key_file` among them. In `given`, None and () count as
        absent."""
        environ = os.environ if environ is None else environ
        refuse_misspelled(environ, known_variables(cls))
        values = from_environment(environ, cls)
        values |= {name: value for name, value in (given or {}).items() if value not in (None, ())}
        if path := values.get("api_key_file"):
            values["api_key"] = (*values.get("api_key", ()), *_keys_in(path))
        return cls(**values)

    @property
    def is_private(self) -> bool:
        """Whether nothing but the address keeps strangers out: this machine's own, and no key."""
        return is_loopback(self.host) and not self.api_key

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """By which names the server may be asked; None if by any."""
        return self.allowed_host if self.is_private or self.allowed_host else None

    @property
    def shows_xray(self) -> bool:
        """Whether the engine's steps can be watched."""
        return self.web and (self.is_private if self.xray is None else self.xray)

    @property
    def engine_limits(self) -> dict[str, float]:
        """Keyword arguments of AsyncEngine. In step mode nothing times out."""
        return {
            name: 0.0 if self.step else getattr(self, name)
            for name in ("step_timeout", "queue_timeout", "request_timeout")
        }

    def non_default(self) -> dict[str, Any]:
        """The settings that differ from their defaults and may be shown."""
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.repr
            and item.default is not MISSING
            and getattr(self, item.name) != item.default
        }


def _keys_in(path: str) -> tuple[str, ...]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"cannot read keys from {path!r}", param="api_key_file") from None
    keys = tuple(line.strip() for line in lines if line.strip())
    if not keys:
        raise ConfigError(f"there is no key in {path!r}", param="api_key_file")
    return keys
