"""Qwen3.5's head for drafts in plain torch, float32, and checkpoints that have one.

`NaiveHead` computes a text's drafts from all of it, row by row, as published checkpoints lay the head
out: it has no cache, and shares no code with the engine.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

LAYER = "mtp.layers.0."


def random_head(config: Any, seed: int = 7) -> dict[str, Tensor]:
    """By the names of a published checkpoint. Norms are stored as what is added to 1."""
    d, dim, inner = config.hidden_size, config.head_dim, config.intermediate_size
    query, key = config.num_attention_heads * dim, config.num_key_value_heads * dim
    shapes = {
        "mtp.fc.weight": (d, 2 * d),
        "mtp.pre_fc_norm_embedding.weight": (d,),
        "mtp.pre_fc_norm_hidden.weight": (d,),
        "mtp.norm.weight": (d,),
        f"{LAYER}input_layernorm.weight": (d,),
        f"{LAYER}post_attention_layernorm.weight": (d,),
        f"{LAYER}self_attn.q_proj.weight": (2 * query, d),
        f"{LAYER}self_attn.k_proj.weight": (key, d),
        f"{LAYER}self_attn.v_proj.weight": (key, d),
        f"{LAYER}self_attn.o_proj.weight": (d, query),
        f"{LAYER}self_attn.q_norm.weight": (dim,),
        f"{LAYER}self_attn.k_norm.weight": (dim,),
        f"{LAYER}mlp.gate_proj.weight": (inner, d),
        f"{LAYER}mlp.up_proj.weight": (inner, d),
        f"{LAYER}mlp.down_proj.weight": (d, inner),
    }
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) == 1 else 0.15)
        for name, shape in shapes.items()
    }


def with_head(folder: Path, to: Path, head: dict[str, Tensor]) -> Path:
    """A copy of a checkpoint that has the head beside the model."""
    copy = Path(shutil.copytree(folder, to))
    tensors = load_file(copy / "model.safetensors")
    detached = {name: tensor.detach().clone() for name, tensor in head.items()}
    save_file(tensors | detached, copy / "model.safetensors", {"format": "pt"})
    config = json.loads((copy / "config.json").read_text())
    config |= {"mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}
    (copy / "config.json").write_text(json.dumps(config))
    return copy


class NaiveHead:
    """model: transformers' own, in float32. head: its tensors, by name."""

    def __init__(self, model: Any, head: dict[str, Tensor]) -> None:
        self.model = model
        self.head = head
        self.config = model.config
        self._known: list[tuple[list[int], Tensor]] = []

    def states(self, text: Sequence[int]) -> Tensor:
        """The model's, behind its last norm: [n, d]. Those of a longer known text begin alike."""
        tokens, count = list(text), len(text)
        for known, states in self._known:
            if known[:count] == tokens:
                return states[:count]
        with torch.no_grad():
            found: Tensor = self.model.model(input_ids=torch.tensor([tokens])).last_hidden_state[0]
        self._known.append((tokens, found))
        return found

    def rows(self, states: Tensor, behind: Tensor, seen: Tensor | None = None) -> Tensor:
        """What the head makes of states [n, d] and the tokens [n] behind them, of the positions from 0:
        [n, d], finally normed. seen: [n, n] bool, which rows each attends to; those up to it if None."""
        embedded = self._norm(self.model.model.embed_tokens(behind), "mtp.pre_fc_norm_embedding")
        hidden = self._norm(states, "mtp.pre_fc_norm_hidden")
        x = torch.cat([embedded, hidden], dim=-1) @ self.head["mtp.fc.weight"].T
        return self._norm(self.layer(x, torch.arange(len(x)), seen), "mtp.norm")

    def layer(self, x: Tensor, positions: Tensor, seen: Tensor | None = None) -> Tensor:
        """A decoder layer with gated attention, of [n, d]."""
        count, dim = len(x), self.config.head_dim
        hidden = self._norm(x, f"{LAYER}input_layernorm")
        q, gate = self._times(hidden, "self_attn.q_proj").view(count, -1, 2 * dim).chunk(2, dim=-1)
        k, v = (self._times(hidden, f"self_attn.{n}_proj").view(count, -1, dim) for n in "kv")
        q = self._turned(self._norm(q, f"{LAYER}self_attn.q_norm"), positions)
        k = self._turned(self._norm(k, f"{LAYER}self_attn.k_norm"), positions)
        k, v = (one.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for one in (k, v))
        if seen is None:
            seen = torch.ones(count, count, dtype=torch.bool).tril()
        scores = torch.einsum("ihd,jhd->hij", q, k) * dim**-0.5
        shares = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
        attended = torch.einsum("hij,jhd->ihd", shares, v) * gate.sigmoid()
        x = x + self._times(attended.reshape(count, -1), "self_attn.o_proj")
        hidden = self._norm(x, f"{LAYER}post_attention_layernorm")
        gated = F.silu(self._times(hidden, "mlp.gate_proj")) * self._times(hidden, "mlp.up_proj")
        return x + self._times(gated, "mlp.down_proj")

    def scores(
        self, text: Sequence[int], drafts: Sequence[int], heard: dict[int, int] | None = None
    ) -> Tensor:
        """Logits [k, vocab] of each of k drafts behind a text whose last token has no state, given those
        before it. heard: the token behind a position, where the head was given another than the text's.
        """
        behind = [*text[1:], *drafts[:-1]]
        for place, token in (heard or {}).items():
            behind[place] = token
        states, found = self.states(text[:-1]), []
        for depth in range(len(drafts)):
            out = self.rows(states, torch.tensor(behind[: len(text) - 1 + depth]))[-1:]
            found.append(self.model.lm_head(out)[0])
            states = torch.cat([states, out])
        return torch.stack(found)

    def _times(self, x: Tensor, name: str) -> Tensor:
        return x @ self.head[f"{LAYER}{name}.weight"].T

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.config.rms_norm_eps)
        return x * scale * (1 + self.head[f"{name}.weight"])

    def _turned(self, x: Tensor, positions: Tensor) -> Tensor:
        """The first quarter of each head, by the model's angles."""
        rope = self.config.rope_parameters
        size = int(x.shape[-1] * rope["partial_rotary_factor"])
        rates = rope["rope_theta"] ** (-torch.arange(0, size, 2) / size)
        angles = positions[:, None, None] * torch.cat([rates, rates])
        front, rest = x[..., :size], x[..., size:]
        other = torch.cat([-front[..., size // 2 :], front[..., : size // 2]], dim=-1)
        return torch.cat([front * angles.cos() + other * angles.sin(), rest], dim=-1)


def trained_head(model: Any, texts: Sequence[Sequence[int]], steps: int) -> dict[str, Tensor]:
    """A head that knows these texts: its first draft of each token, and often the second."""
    head = random_head(model.config)
    naive = NaiveHead(model, head)
    states = [naive.states(text) for text in texts]
    for one in head.values():
        one.requires_grad_()
    adam = torch.optim.Adam(head.values(), lr=0.01)
    for _ in range(steps):
        adam.zero_grad()
        for text, known in zip(texts, states, strict=True):
            tokens = torch.tensor(text)
            first = naive.rows(known[:-2], tokens[1:-1])
            loss = F.cross_entropy(model.lm_head(first), tokens[2:])
            # Once more, each row from what the one before it has said.
            rolled = torch.cat([known[:1], first[:-1]])
            second = naive.rows(rolled, tokens[1:-1])
            loss = loss + F.cross_entropy(model.lm_head(second), tokens[2:])
            (loss / len(texts)).backward()
        adam.step()
    return {name: tensor.detach() for name, tensor in head.items()}
