"""What runs here, for routers and people: version, server, model, load, and the prefix cache.

Paths and fields are those of SGLang and vLLM, whose routers ask for them; both of SGLang's spellings
are answered. A model is told by the name it is served under: no path of this machine gets out.
"""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from yaie import __version__
from yaie.server.openapi.document import described
from yaie.server.service import Service


class Version(BaseModel):
    """The version of this server."""

    version: str


class Info(BaseModel):
    """What describes a model or a server."""

    model_config = ConfigDict(protected_namespaces=())

    model_path: str = Field(description="The name that the model is served under.")
    served_model_name: str


class ServerInfo(Info):
    """How the engine was set up, and how busy it is."""

    version: str
    status: str
    backend: str
    dtype: str
    device: str
    tp_size: int
    pp_size: int
    dp_size: int
    block_size: int
    max_model_len: int
    max_running_requests: int = Field(description="Requests that run at once, at most.")
    max_waiting_requests: int = Field(description="Requests that may queue; more are refused.")
    max_prefill_tokens: int = Field(description="Tokens that one step computes, at most.")
    max_total_num_tokens: int = Field(description="Token slots in the KV pool.")
    policy: str
    prefix_caching: bool
    num_unfinished_calls: int = Field(description="Calls that wait or are being answered.")


class ModelInfo(Info):
    """The model that is served."""

    architectures: list[str]
    is_generation: bool
    max_model_len: int
    vocab_size: int
    num_parameters: int
    weight_bytes: int
    dtype: str
    has_chat_template: bool
    left_out: str = Field(
        description="What the model takes beside text and is not served with, such as images; empty for "
        "a model of text."
    )


class Load(BaseModel):
    """How busy the engine was after its last step."""

    dp_rank: int = Field(description="Of the engine: there is one, 0.")
    num_reqs: int = Field(description="Requests, those that wait among them.")
    num_waiting_reqs: int
    num_tokens: int = Field(description="Token slots of the KV pool that requests hold.")


class ResetCache(BaseModel):
    """What forgetting the cached prefixes freed."""

    freed_blocks: int


def info_router(service: Service) -> APIRouter:
    """The router with these endpoints."""
    router = APIRouter()
    server_told = described("getServerInfo", "operation", "How the engine is set up")
    model_told = described("getModelInfo", "models", "What the model is")
    reset_told = described(
        "resetPrefixCache",
        "operation",
        "Forget the prefixes that no request uses",
        errors=(500,),
    )

    @router.get("/version", **described("getVersion", "operation", "The version of this server"))
    async def version() -> Version:
        """The version of this server."""
        return Version(version=__version__)

    @router.get("/server_info", **server_told)
    async def server_info() -> ServerInfo:
        """How the engine was set up."""
        info = service.engine.info
        config = info.config
        return ServerInfo(
            model_path=service.model_name,
            served_model_name=service.model_name,
            version=__version__,
            status=service.engine.state.value,
            backend=info.backend,
            dtype=info.dtype,
            device=info.device,
            tp_size=config.tensor_parallel,
            pp_size=config.pipeline_parallel,
            dp_size=1,
            block_size=config.block_size,
            max_model_len=info.max_model_len,
            max_running_requests=config.max_num_seqs,
            max_waiting_requests=config.max_waiting,
            max_prefill_tokens=config.step_tokens(info.device),
            max_total_num_tokens=info.pool_tokens,
            policy=config.policy,
            prefix_caching=config.prefix_caching,
            num_unfinished_calls=service.engine.num_streams,
        )

    @router.get("/model_info", **model_told)
    async def model_info() -> ModelInfo:
        """The model that is served."""
        info = service.engine.info
        return ModelInfo(
            model_path=service.model_name,
            served_model_name=service.model_name,
            architectures=[info.architecture],
            is_generation=True,
            max_model_len=info.max_model_len,
            vocab_size=info.vocab_size,
            num_parameters=info.num_parameters,
            weight_bytes=info.weight_bytes,
            dtype=info.dtype,
            has_chat_template=service.engine.tokenizer.has_chat_template,
            left_out=info.left_out,
        )

    @router.get(
        "/get_load",
        **described("getLoad", "operation", "How busy the engine is, for routers"),
    )
    async def get_load() -> list[Load]:
        """How busy the engine is."""
        info = service.engine.info
        stats = service.engine.telemetry.stats
        waiting = int(stats["num_waiting"])
        usage = stats.get("full_kv_usage", stats["kv_usage"])
        return [
            Load(
                dp_rank=0,
                num_reqs=waiting + int(stats["num_running"]),
                num_waiting_reqs=waiting,
                num_tokens=round(usage * info.pool_tokens),
            )
        ]

    @router.post("/reset_prefix_cache", **reset_told)
    async def reset_prefix_cache() -> ResetCache:
        """Forget every cached prefix that no request uses."""
        return ResetCache(freed_blocks=await service.engine.reset_prefix_cache())

    # What else SGLang's clients call a path; an operation's name may stand once.
    for path, method, endpoint, told in (
        ("/get_server_info", "GET", server_info, server_told),
        ("/get_model_info", "GET", model_info, model_told),
        ("/flush_cache", "POST", reset_prefix_cache, reset_told),
    ):
        alias = {**told, "operation_id": f"{told['operation_id']}Alias"}
        router.add_api_route(path, endpoint, methods=[method], **alias)
    return router
