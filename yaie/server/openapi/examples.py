"""Bodies that work, for the OpenAPI document. A test sends every one of them.

None names a model: the served one is meant, whichever it is.
"""

from typing import Any

_QUESTION = [{"role": "user", "content": "What is a KV cache?"}]
_WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
_COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}

Examples = dict[str, dict[str, Any]]

CHAT: Examples = {
    "question": {"messages": _QUESTION, "temperature": 0, "max_completion_tokens": 16},
    "stream": {
        "messages": _QUESTION,
        "max_completion_tokens": 16,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "several answers": {"messages": _QUESTION, "n": 2, "seed": 7, "max_completion_tokens": 8},
    "log-probabilities": {
        "messages": _QUESTION,
        "max_completion_tokens": 4,
        "logprobs": True,
        "top_logprobs": 2,
    },
    "token ids beside the text": {
        "messages": _QUESTION,
        "max_completion_tokens": 4,
        "min_tokens": 2,
        "return_token_ids": True,
        "prompt_logprobs": 1,
    },
    "usage in every chunk": {
        "messages": _QUESTION,
        "max_completion_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
    },
    "an answer that is begun": {
        "messages": [*_QUESTION, {"role": "assistant", "content": "A KV cache"}],
        "max_completion_tokens": 4,
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "JSON": {
        "messages": [{"role": "user", "content": "Which colour has the sky?"}],
        "max_completion_tokens": 32,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "sky", "schema": _COLOUR},
        },
    },
    "tools": {
        "messages": [{"role": "user", "content": "How is the weather in Ulm?"}],
        "max_completion_tokens": 32,
        "tools": [
            {
                "type": "function",
                "function": {"name": "weather", "description": "Tells it.", "parameters": _WEATHER},
            }
        ],
    },
}

COMPLETION: Examples = {
    "text": {"prompt": "A paged KV cache", "temperature": 0, "max_tokens": 16},
    "several texts": {"prompt": ["A block table", "A scheduler"], "max_tokens": 8, "n": 2},
    "token ids": {"prompt": [5, 6, 7], "max_tokens": 4},
    "stream": {"prompt": "A paged KV cache", "max_tokens": 16, "stream": True},
    "token ids beside the text": {
        "prompt": "A block table",
        "max_tokens": 4,
        "return_token_ids": True,
        "prompt_logprobs": 0,
        "logprobs": 0,
        "logprob_token_ids": [5, 6],
    },
    "log-probabilities of a text": {
        "prompt": "A block table says where.",
        "echo": True,
        "logprobs": 1,
        "max_tokens": 0,
    },
}

RESPONSES: Examples = {
    "question": {
        "input": "What is a KV cache?",
        "instructions": "Be brief.",
        "max_output_tokens": 16,
    },
    "stream": {"input": "What is a KV cache?", "max_output_tokens": 16, "stream": True},
    "conversation": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Name a colour."}]},
            {"role": "assistant", "content": "Red."},
            {"role": "user", "content": "Another one."},
        ],
        "max_output_tokens": 8,
        "store": False,
    },
    "JSON": {
        "input": "Which colour has the sky?",
        "max_output_tokens": 32,
        "text": {"format": {"type": "json_schema", "name": "sky", "schema": _COLOUR}},
    },
    "tools": {
        "input": "How is the weather in Ulm?",
        "max_output_tokens": 32,
        "tools": [{"type": "function", "name": "weather", "parameters": _WEATHER}],
    },
}

COUNT_TOKENS: Examples = {"question": {"messages": _QUESTION, "system": "Be brief."}}

MESSAGES: Examples = {
    "question": {"messages": _QUESTION, "system": "Be brief.", "max_tokens": 16},
    "stream": {"messages": _QUESTION, "max_tokens": 16, "stream": True},
    "conversation": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Name a colour."}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Red."}]},
            {"role": "user", "content": "Another one."},
        ],
        "max_tokens": 8,
        "stop_sequences": ["."],
    },
    "JSON": {
        "messages": [{"role": "user", "content": "Which colour has the sky?"}],
        "max_tokens": 32,
        "output_config": {"format": {"type": "json_schema", "schema": _COLOUR}},
    },
    "tools": {
        "messages": [{"role": "user", "content": "How is the weather in Ulm?"}],
        "max_tokens": 32,
        "tools": [{"name": "weather", "description": "Tells it.", "input_schema": _WEATHER}],
    },
}

EMBEDDINGS: Examples = {
    "texts": {"input": ["A block table says where.", "What is a block table?"]},
    "mean": {"input": "A block table says where.", "pooling": "mean", "encoding_format": "base64"},
}

TOKENIZE: Examples = {
    "text": {"prompt": "A block table says where.", "return_token_strs": True},
    "conversation": {"messages": _QUESTION},
}

DETOKENIZE: Examples = {"tokens": {"tokens": [5, 6, 7]}}
