"""What keeps the tutor from learning its questions by heart: dropout, and a mean of weights.

Dropout (Srivastava et al. 2014) acts on what attention and feed-forward network add to the residual
stream. Its share is a tensor, so that it may fall to zero at the end of a training without compiling
the model again. The mean is exponential, over the steps of the training's last part.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

KEPT_UNTIL, GONE_AT = 0.75, 0.9
"""Dropout stays whole until the first, as a share of the training, and is zero from the second on."""
OUTPUTS = (".o_proj", ".out_proj", ".down_proj", ".w2")
"""The last products of attention, of a convolution and of a feed-forward network, in Llama and LFM2."""
MEAN_FROM = 0.5
MEAN_DECAY = 0.998


class DroppingLinear(nn.Linear):
    """A linear layer that, in training, drops a `share` of its outputs and scales the others."""

    share: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in]. Returns [..., out]."""
        y = super().forward(x)
        if not self.training:
            return y
        kept = torch.rand_like(y) >= self.share
        return y * kept / (1 - self.share).to(y.dtype)


class Regulariser:
    """Dropout on a model, before it is compiled, and the mean of its weights."""

    def __init__(self, model: PreTrainedModel, dropout: float) -> None:
        """dropout: the share at the beginning, from 0 to below 1; with 0 the model is left as it is."""
        self.model, self.dropout = model, dropout
        self.share = torch.zeros((), device=next(model.parameters()).device)
        self.mean: list[Tensor] = []
        for layer in self._outputs() if dropout else ():
            layer.__class__ = DroppingLinear
            layer.share = self.share

    def _outputs(self) -> Iterator[nn.Module]:
        for name, module in self.model.named_modules():
            if name.endswith(OUTPUTS):
                yield module

    def before_step(self, done: float) -> None:
        """done: from 0 at the first step to 1 at the end."""
        left = min(1.0, max(0.0, (GONE_AT - done) / (GONE_AT - KEPT_UNTIL)))
        self.share.fill_(self.dropout * left)

    @torch.no_grad()
    def after_step(self, done: float) -> None:
        """Takes the new weights into the mean, from the middle of the training on."""
        if done < MEAN_FROM:
            return
        weights = [parameter.detach() for parameter in self.model.parameters()]
        if not self.mean:
            self.mean = [weight.clone() for weight in weights]
        torch._foreach_lerp_(self.mean, weights, 1 - MEAN_DECAY)

    @torch.no_grad()
    def use_mean(self) -> None:
        """Put the mean into the model; nothing happens if the training was too short for one."""
        for parameter, mean in zip(self.model.parameters(), self.mean, strict=False):
            parameter.copy_(mean)


def first_words(learn: Tensor) -> Tensor:
    """Where an answer begins: the learned tokens behind one that is not. [batch, length] bool."""
    before = torch.zeros_like(learn)
    before[:, 1:] = learn[:, :-1]
    return learn & ~before
