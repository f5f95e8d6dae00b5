"""What becomes of fields that are no part of an API here, but that clients of other servers send.

One verdict for each name; the API page's table is made from them. A field that an endpoint knows itself
needs none. Names that stand nowhere are ignored, unless they are close to one that is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Dialect = Literal["chat", "text", "responses", "messages", "embeddings", "tokenize", "detokenize"]
DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "messages",
    "/v1/embeddings": "embeddings",
    "/tokenize": "tokenize",
    "/detokenize": "detokenize",
}
"""By path."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """Honoured under the first of these names that the endpoint knows."""

    names: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Refused with the reason, unless it asks for what happens anyway. neutral: what asks for that."""

    why: str
    neutral: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """Honoured: what the answer must look like. Refused where no text is generated."""

    what: str


@dataclass(frozen=True, slots=True)
class Beside:
    """Honoured, though the part that speaks OpenAI's API has no field for it: noted beside the body.
    Refused by endpoints that are not in `dialects`, unless it asks for what happens anyway."""

    what: str
    dialects: tuple[Dialect, ...]
    neutral: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Idle:
    """Has no effect as long as another field asks for nothing, which is looked at by itself."""

    beside: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """Left out, and told in the header."""

    why: str


Verdict = Renamed | Refused | Form | Beside | Idle | Ignored

_OUTPUT = ("max_tokens", "max_output_tokens")
_SAMPLER = "This server has no such sampler; leave it out."
_FORM = "Give response_format in its place."
_CHAT = "POST /v1/chat/completions takes it."
_TEXT = "POST /v1/completions takes it."
_ADAPTER = "This server serves one model, without adapters."
_TEXTS: tuple[Dialect, ...] = ("chat", "text", "responses", "messages")

FIELDS: Mapping[str, Verdict] = {
    # The same under another name.
    "n_predict": Renamed(_OUTPUT, "llama.cpp"),
    "num_predict": Renamed(_OUTPUT, "Ollama"),
    "max_new_tokens": Renamed(_OUTPUT, "text-generation-inference"),
    "max_output_tokens": Renamed(_OUTPUT, "the Responses API"),
    "max_completion_tokens": Renamed(_OUTPUT, "chat completions"),
    "max_tokens": Renamed(_OUTPUT, "chat completions"),
    "repeat_penalty": Renamed(("repetition_penalty",), "llama.cpp and Ollama"),
    "stop_sequences": Renamed(("stop",), "Anthropic and text-generation-inference"),
    "stop": Renamed(("stop_sequences",), "chat completions"),
    "random_seed": Renamed(("seed",), "Mistral"),
    # What other engines' samplers take.
    "typical_p": Refused(_SAMPLER, (1,)),
    "typical": Refused(_SAMPLER, (1,)),
    "tfs_z": Refused(_SAMPLER, (1,)),
    "tfs": Refused(_SAMPLER, (1,)),
    "top_a": Refused(_SAMPLER, (0,)),
    "mirostat": Refused(_SAMPLER, (0,)),
    "mirostat_mode": Refused(_SAMPLER, (0,)),
    "mirostat_tau": Idle("mirostat"),
    "mirostat_eta": Idle("mirostat"),
    "dry_multiplier": Refused(_SAMPLER, (0,)),
    "dry_base": Idle("dry_multiplier"),
    "dry_allowed_length": Idle("dry_multiplier"),
    "dry_penalty_last_n": Idle("dry_multiplier"),
    "dry_range": Idle("dry_multiplier"),
    "dry_sequence_breakers": Idle("dry_multiplier"),
    "xtc_probability": Refused(_SAMPLER, (0,)),
    "xtc_threshold": Idle("xtc_probability"),
    "dynatemp_range": Refused(_SAMPLER, (0,)),
    "dynatemp_exponent": Idle("dynatemp_range"),
    "dynatemp_low": Idle("dynatemp_range"),
    "dynatemp_high": Idle("dynatemp_range"),
    "smoothing_factor": Refused(_SAMPLER, (0,)),
    "smoothing_curve": Idle("smoothing_factor"),
    "epsilon_cutoff": Refused(_SAMPLER, (0,)),
    "eta_cutoff": Refused(_SAMPLER, (0,)),
    "penalty_alpha": Refused(_SAMPLER, (0,)),
    "top_n_sigma": Refused(_SAMPLER, (0, -1)),
    "guidance_scale": Refused(_SAMPLER, (1,)),
    "negative_prompt": Refused(_SAMPLER, ("",)),
    "no_repeat_ngram_size": Refused(_SAMPLER, (0,)),
    "encoder_repetition_penalty": Refused(_SAMPLER, (1,)),
    "do_sample": Refused("Give temperature: 0 for the most likely tokens.", (True,)),
    "temperature_last": Refused("The temperature comes first here.", (False,)),
    "samplers": Refused("Their order cannot be changed here.", ([],)),
    "sampler_priority": Refused("Their order cannot be changed here.", ([],)),
    "use_beam_search": Refused("This server has no beam search.", (False,)),
    "length_penalty": Refused("It belongs to beam search, which this server has not.", (1,)),
    "early_stopping": Refused("It belongs to beam search, which this server has not.", (False,)),
    "repeat_last_n": Refused("Penalties count the whole sequence here.", (-1,)),
    "penalize_newline": Refused(_SAMPLER, (True,)),
    "penalize_nl": Refused(_SAMPLER, (True,)),
    # What the answer would look like.
    "structured_outputs": Form(
        "one of `json`, `json_object`, `regex`, `choice`, `grammar`, `structural_tag`"
    ),
    "guided_json": Form("a schema"),
    "guided_json_object": Form("any JSON object"),
    "guided_regex": Form("a regular expression"),
    "guided_choice": Form("one of some texts"),
    "guided_grammar": Form("a grammar in Lark or GBNF"),
    "grammar": Form("llama.cpp's name of a grammar in Lark or GBNF"),
    "json_schema": Form("llama.cpp's name of a schema"),
    "format": Form("Ollama's name of a schema; `json` is any JSON object"),
    "guided_decoding_backend": Idle("guided_json"),
    "guided_whitespace_pattern": Idle("guided_json"),
    # What the part that speaks OpenAI's API need not know of.
    "bad_words": Beside("texts that are not generated, by their tokens", _TEXTS, ([],)),
    "include_stop_str_in_output": Beside("the text ends with what ended it", _TEXTS, (False,)),
    "skip_special_tokens": Beside("false: the text has special tokens, too", _TEXTS, (True,)),
    "thinking_token_budget": Beside("tokens of a thought, at most; -1 is no limit", _TEXTS, (-1,)),
    "return_tokens_as_token_ids": Beside(
        "log-probabilities name tokens as `token_id:5`", ("chat", "text"), (False,)
    ),
    "request_id": Beside("a part of the answer's `id`", ("chat", "text")),
    "cache_salt": Beside(
        "only requests with the same one share cached prefixes", (*_TEXTS, "embeddings")
    ),
    "spaces_between_special_tokens": Refused("Only true is supported.", (True,)),
    "documents": Refused("Put them into a message.", ([],)),
    "audio": Refused("This server speaks text."),
    "prediction": Refused("Predicted outputs are not supported.", ({},)),
    "kv_transfer_params": Refused("Blocks are handed over by --role alone."),
    "cache_prompt": Refused("Every prefix is cached here.", (True,)),
    "raw": Refused("POST /v1/completions takes a text as it is.", (False,)),
    "images": Refused("This server reads text.", ([],)),
    "mm_processor_kwargs": Refused("This server reads text.", ({},)),
    # Of another API here, where it would change the answer.
    "system": Refused("Send it as a message whose role is system.", ("", [])),
    "instructions": Refused("Send it as a message whose role is system.", ("",)),
    "think": Refused("Give reasoning.effort, or thinking, as this API has it."),
    "thinking": Refused("Give reasoning.effort in its place."),
    "enable_thinking": Refused("Give reasoning.effort, or thinking, as this API has it."),
    "reasoning": Refused("Give thinking in its place."),
    "options": Refused("Send the fields in it as they are called here.", ({},)),
    "output_config": Refused(_FORM, ({},)),
    "response_format": Refused(
        "Give the form as this API has it, in text.format or output_config."
    ),
    "text": Refused(_FORM, ({},)),
    "input": Refused("This API takes messages or a prompt."),
    "chat_template": Refused("The model's own template is used.", ("",)),
    "n": Refused(_CHAT, (1,)),
    "logit_bias": Refused(_CHAT, ({},)),
    "logprobs": Refused(_CHAT, (False,)),
    "top_logprobs": Refused(_CHAT, (0,)),
    "prompt_logprobs": Refused(_CHAT),
    "logprob_token_ids": Refused(_CHAT),
    "min_tokens": Refused(_CHAT, (0,)),
    "stop_token_ids": Refused(_CHAT, ([],)),
    "truncate_prompt_tokens": Refused(_CHAT),
    "return_token_ids": Refused(_CHAT, (False,)),
    "messages": Refused(_CHAT),
    "tools": Refused(_CHAT, ([],)),
    "tool_choice": Refused(_CHAT, ("auto", "none")),
    "prompt": Refused(_TEXT),
    "echo": Refused(_TEXT, (False,)),
    "suffix": Refused(_TEXT, ("",)),
    "best_of": Refused(_TEXT, (1,)),
    "prompt_embeds": Refused("Send text or token ids."),
    "lora_path": Refused(_ADAPTER),
    "lora_request": Refused(_ADAPTER),
    "lora": Refused(_ADAPTER, ([],)),
    "adapter_id": Refused(_ADAPTER),
    # Hints and labels.
    "client_metadata": Ignored("A label."),
    "provider_specific_fields": Ignored("Of another provider."),
    "keep_alive": Ignored("The model stays loaded."),
    "usage": Ignored("Usage is told in any case."),
    "provider": Ignored("A router's."),
    "transforms": Ignored("A router's."),
    "route": Ignored("A router's."),
    "plugins": Ignored("A router's."),
    "models": Ignored("A router's: one model is served."),
    "num_ctx": Ignored("The context is set at start (--max-model-len)."),
    "num_keep": Ignored("Nothing is shifted out of a context."),
    "num_batch": Ignored("Set at start."),
    "num_gpu": Ignored("Set at start."),
    "num_thread": Ignored("Set at start (--threads)."),
    "id_slot": Ignored("Requests have no slots."),
    "slot_id": Ignored("Requests have no slots."),
    "timings_per_token": Ignored("Times are in /metrics."),
    "betas": Ignored("Nothing here is behind such a switch."),
}
"""By name, at the top of a body. Of an API that knows a name itself the verdict does not count."""
BESIDE: Mapping[str, frozenset[Dialect]] = {
    name: frozenset(verdict.dialects)
    for name, verdict in FIELDS.items()
    if isinstance(verdict, Beside)
}
"""Where each of those is taken out of a body."""
FORMS = frozenset(name for name, verdict in FIELDS.items() if isinstance(verdict, Form))
"""Those that say what the answer must look like."""
