"""`/tokenize`, `/detokenize`, `/tokenizer_info`: the model's tokenizer, for clients that count tokens.

Paths and fields are vLLM's: routers and evaluation harnesses ask for them.
"""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import FAST, Flag, PromptToken, Text
from yaie.models.tokenizer import PromptText
from yaie.server.discriminated import Body, Conversation, choice, tag
from yaie.server.openapi import examples
from yaie.server.openapi.document import TOKENS, described
from yaie.server.service import Service
from yaie.system.json_slices import Rows, written

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer
    from yaie.models.tokenizer import Tokenizer

MAX_CHARS = 1 << 20
"""Of one text to tokenize: about a second of work."""
MAX_TOKENS = 1 << 17
OF_CHAT = {
    "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens",
    "chat_template_kwargs",
}  # fmt: skip
"""What is checked as in the body of a chat completion."""


class TokenizeText(Body):
    """A text to tokenize."""

    prompt: Annotated[Text, Field(max_length=MAX_CHARS)]
    model: Text | None = Field(None, description="The served model; may be left out.")
    add_special_tokens: Flag = Field(True, description="Such as a first BOS, if the model has one.")
    return_token_strs: Flag | None = None


class TokenizeChat(Conversation):
    """A conversation to tokenize, by the model's chat template."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1), FAST]
    model: Text | None = Field(None, description="The served model; may be left out.")
    tools: Annotated[list[dict[str, Any]], FAST] | None = None
    # Checked as those of a chat completion, whose prompt it is.
    add_generation_prompt: Flag | None = Field(
        None, description="False: do not end where the assistant begins to speak."
    )
    continue_final_message: Flag | None = Field(
        None, description="End inside the last message; needs add_generation_prompt: false."
    )
    add_special_tokens: Flag | None = Field(
        None, description="A BOS and the like in front of what the template writes."
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="Variables for the chat template."
    )
    return_token_strs: Flag | None = None

    def chat_fields(self) -> dict[str, Any]:
        """See Conversation."""
        return {name: getattr(self, name) for name in OF_CHAT & self.model_fields_set}

    def _forget(self) -> None:
        self.messages = []


TokenizeRequest = Annotated[
    Annotated[TokenizeText, tag("text")] | Annotated[TokenizeChat, tag("chat")],
    choice(lambda body: _kind(body), "The body must be a JSON object with prompt or messages."),
]


class DetokenizeRequest(Body):
    """Tokens to put together."""

    tokens: Annotated[list[PromptToken], Field(max_length=MAX_TOKENS), FAST]
    model: Text | None = Field(None, description="The served model; may be left out.")


class Tokens(BaseModel):
    """Tokens of a text or of a conversation."""

    count: int
    max_model_len: int = Field(description="The longest sequence, prompt and output together.")
    tokens: list[int]
    token_strs: list[str] | None = Field(description="As the vocabulary spells them, if asked for.")


class Detokenized(BaseModel):
    """The text of tokens, special tokens as they are written."""

    prompt: str


class TokenizerInfo(BaseModel):
    """The tokenizer and the chat template."""

    tokenizer_class: str
    vocab_size: int
    model_max_length: int
    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    chat_template: str | None


def _kind(body: Any) -> str | None:
    if isinstance(body, dict):
        return "chat" if "messages" in body else "text"
    if isinstance(body, TokenizeChat):  # read beside the event loop
        return "chat"
    return "text" if isinstance(body, TokenizeText) else None


def tokens_router(service: Service, api: "ApiServer") -> APIRouter:
    """The router with the three endpoints. api: the part that knows what a conversation may hold."""
    router = APIRouter()
    in_tokenizer = service.engine.in_tokenizer

    @router.post(
        "/tokenize",
        **described(
            "tokenize",
            "tokens",
            "The tokens of a text or of a conversation",
            answer=Tokens,
            errors=TOKENS,
            samples=examples.TOKENIZE,
        ),
    )
    async def tokenize(body: TokenizeRequest, request: Request) -> Response:
        """The tokens of a text or of a conversation."""
        api.check_model(service, body.model)
        return await api.until_disconnect(request.receive, _tokenized(service, api, body))

    @router.post(
        "/detokenize",
        **described(
            "detokenize",
            "tokens",
            "The text of tokens",
            errors=TOKENS,
            samples=examples.DETOKENIZE,
        ),
    )
    async def detokenize(body: DetokenizeRequest) -> Detokenized:
        """The text of tokens."""
        api.check_model(service, body.model)
        text = await in_tokenizer(_decoded, service.engine.tokenizer, body.tokens)
        return Detokenized(prompt=text)

    @router.get(
        "/tokenizer_info",
        **described("getTokenizerInfo", "tokens", "What a client needs to tokenize by itself"),
    )
    async def tokenizer_info() -> TokenizerInfo:
        """What a client needs to tokenize by itself."""
        described = service.engine.tokenizer.describe()
        return TokenizerInfo(**described, model_max_length=service.max_model_len)

    return router


def _decoded(tokenizer: "Tokenizer", tokens: list[int]) -> str:
    # Beside the event loop: looking at 125,000 ids takes milliseconds, as putting them together does.
    if max(tokens, default=0) >= (size := tokenizer.vocab_size):
        index = next(index for index, token in enumerate(tokens) if token >= size)
        raise InvalidRequestError(
            f"tokens[{index}] is {tokens[index]}; ids go from 0 to {size - 1}",
            param=f"tokens[{index}]",
        )
    return tokenizer.decode_all(tokens)


async def _tokenized(
    service: Service, api: "ApiServer", body: TokenizeText | TokenizeChat
) -> Response:
    engine = service.engine
    if isinstance(body, TokenizeText):
        tokens = await engine.encode(PromptText([body.prompt], body.add_special_tokens))
    else:
        chat = body.as_chat(api)
        messages = [message.for_template() for message in chat.messages]
        messages = service.for_template(messages, chat.prompt_tools)
        tokens = await engine.encode_chat(
            messages, chat.prompt_tools, chat.prompt_options, is_counted=True
        )

    def result() -> dict[str, Any]:
        told = {"count": len(tokens), "max_model_len": service.max_model_len, "tokens": tokens}
        spelled = (
            Rows(list(tokens), engine.tokenizer.token_strings) if body.return_token_strs else None
        )
        return {**told, "token_strs": spelled}

    return Response(b"".join(await written(result)), media_type="application/json")
