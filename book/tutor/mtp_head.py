"""The tutor's third way to draft: a head that predicts one token more, as it is trained.

One decoder layer of the tutor's width (DeepSeek-V3 2024, section 2.2). At position i it sees the
tutor's state there and the token behind it, so what it says is of the token after that:

    x[i] = project([norm(state[i]); norm(embedding of token i + 1)])
    logits of token i + 2 = the tutor's head(the tutor's norm(layer(x))[i])

Its own output, normed, is the state of position i + 1 when it is rolled on for another token. It is
trained so, too: `rolled` computes each depth from the one before it, with the keys that there will be
when it drafts, those of the tutor's own states for all but the latest positions.
`yaie.models.mtp` computes the same in the engine.
"""

from collections.abc import Callable, Iterator
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig

KeysValues = tuple[Tensor, Tensor]


class MtpHead(nn.Module):
    """The weights that are trained; embedding, last norm and output head are the tutor's."""

    def __init__(self, config: LlamaConfig) -> None:
        """config: the tutor's."""
        super().__init__()
        d, heads, kv = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
        self.config = config
        self.head_dim = config.head_dim
        self.hnorm = nn.RMSNorm(d, eps=config.rms_norm_eps)
        self.enorm = nn.RMSNorm(d, eps=config.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * d, d, bias=False)
        self.layer = nn.ModuleDict(
            {
                "input_layernorm": nn.RMSNorm(d, eps=config.rms_norm_eps),
                "post_attention_layernorm": nn.RMSNorm(d, eps=config.rms_norm_eps),
                "self_attn": nn.ModuleDict(
                    {
                        "q_proj": nn.Linear(d, heads * self.head_dim, bias=False),
                        "k_proj": nn.Linear(d, kv * self.head_dim, bias=False),
                        "v_proj": nn.Linear(d, kv * self.head_dim, bias=False),
                        "o_proj": nn.Linear(heads * self.head_dim, d, bias=False),
                    }
                ),
                "mlp": nn.ModuleDict(
                    {
                        "gate_proj": nn.Linear(d, config.intermediate_size, bias=False),
                        "up_proj": nn.Linear(d, config.intermediate_size, bias=False),
                        "down_proj": nn.Linear(config.intermediate_size, d, bias=False),
                    }
                ),
            }
        )
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
        with torch.no_grad():  # it begins as the tutor's own state, beside a little of the token
            self.eh_proj.weight[:, :d] += torch.eye(d)

    @property
    def model(self) -> "MtpHead":
        """What a trainer compiles."""
        return self

    def forward(
        self, states: Tensor, embedded: Tensor, positions: Tensor, keys_values: list[KeysValues]
    ) -> tuple[Tensor, KeysValues]:
        """One depth. states, embedded: [batch, n, d], of these positions [n] and of the tokens behind
        them. keys_values: of the depths before, all at the same positions.

        Returns the layer's output [batch, n, d], and this depth's own keys and values.
        """
        layer = self.layer
        attention, mlp = cast(nn.ModuleDict, layer["self_attn"]), cast(nn.ModuleDict, layer["mlp"])
        x = self.eh_proj(torch.cat([self.hnorm(states), self.enorm(embedded)], dim=-1))
        normed = layer["input_layernorm"](x)
        q, k, v = (self._heads(attention[name](normed)) for name in ("q_proj", "k_proj", "v_proj"))
        q, k = self._rotated(q, positions), self._rotated(k, positions)
        attended = self._attended(q, [*keys_values, (k, v)])
        x = x + attention["o_proj"](attended.transpose(1, 2).flatten(2))
        normed = layer["post_attention_layernorm"](x)
        x = x + mlp["down_proj"](F.silu(mlp["gate_proj"](normed)) * mlp["up_proj"](normed))
        return x, (k, v)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """As `LlamaRotaryEmbedding` does: the first half of a head turns with the second."""
        half = self.head_dim // 2
        theta = self.config.rope_parameters["rope_theta"]
        exponents = torch.arange(half, device=x.device, dtype=torch.float32) / half
        angles = positions.float()[:, None] / theta**exponents
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def _attended(self, q: Tensor, depths: list[KeysValues]) -> Tensor:
        """Depth s at position i sees one key of each later depth, and those of the first before them.

        Of depth t < s, t above 0, that is position i - (s - t); of the first, all up to i - s.
        """
        n, last = q.shape[2], len(depths) - 1
        k, v = (torch.cat(parts, dim=2) for parts in zip(*depths, strict=True))
        if last == 0:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        place = torch.arange(n, device=q.device)
        back = place[:, None] - place[None, :]
        masks = [back >= last] + [back == last - depth for depth in range(1, last + 1)]
        mask = torch.cat(masks, dim=1)
        groups = q.shape[1] // k.shape[1]
        k, v = (part.repeat_interleave(groups, dim=1) for part in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


Depth = Callable[[Tensor, Tensor, Tensor, list[KeysValues]], tuple[Tensor, KeysValues]]


def rolled(
    depth: Depth, states: Tensor, embedded: Tensor, norm: nn.Module, depths: int
) -> Iterator[Tensor]:
    """The normed states of each depth [batch, n, d]: at position i, for the token i + 2.

    depth: an MtpHead, compiled or not. states: the tutor's, normed. embedded: of the token behind each
    position. The first `s` positions of depth s, counted from 0, have no state before them, and mean
    nothing.
    """
    positions = torch.arange(states.shape[1], device=states.device)
    keys_values: list[KeysValues] = []
    for index in range(depths):
        out, own = depth(states, embedded, positions, keys_values)
        keys_values = [*keys_values, own]
        normed = norm(out)
        yield normed
        if index + 1 < depths:  # the state of the next position is what this one has come to
            states = F.pad(normed[:, :-1], (0, 0, 1, 0))
