# %% [markdown]
# # Lab 19: grids and errors
#
# The weights here are the tutor's own: the product that makes the queries of its first layer, and the
# inputs that it gets, which are the normed embeddings of the vocabulary.

# %%
import torch
from safetensors.torch import load_file

from yaie.core.batch import KVLayerSpec
from yaie.explore import draw, load
from yaie.models.tutor import TUTOR_PATH

part = load("quantization")["quantization"]
int8, int4 = part.Int8(), part.Int4()
gptq = part.Gptq(int4)

tensors = load_file(TUTOR_PATH / "model.safetensors")
layer = "model.layers.0."
weight = tensors[layer + "self_attn.q_proj.weight"].float()
embeddings = tensors["model.embed_tokens.weight"].float()
norm = embeddings.square().mean(dim=1, keepdim=True).add(1e-5).rsqrt()
inputs = embeddings * norm * tensors[layer + "input_layernorm.weight"].float()
inputs = inputs[torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))]
calibration, held_out = inputs[:2048], inputs[2048:]
print(f"a weight {list(weight.shape)}, {len(inputs):,} inputs")

# %% [markdown]
# ## What lies in a word
#
# The eight weights of the chapter's example, on a symmetric grid. Each box is four bits of the word,
# the highest to the left. Which weight is in the box at the very right? What would the word be if all
# eight were 0?

# %%
group = torch.tensor([-3.75, 1.6, 0.2, -0.8, 2.55, 1.25, -0.15, 3.45])
packed = int4.quantize(group.repeat(8, 1), 8)
word = int(packed.qweight[0, 0]) & 0xFFFFFFFF
fig, ax = draw.figure(8, 1.6)
draw.board(ax, 8, 1, f"0x{word:08X}, as an int32 {int(packed.qweight[0, 0]):,}")
for place in range(8):
    code = word >> (28 - 4 * place) & 15
    draw.box(ax, place, 0, f"{code:04b}\n{code}", draw.BLUE if place % 2 else draw.SKY)
    ax.text(place + 0.5, 1.2, f"{float(group[7 - place]):g}", ha="center", va="center", fontsize=8)
draw.show(fig)

# %% [markdown]
# ## How large should a group be?
#
# The mean error of a weight, as a share of its mean size, over the bits that are stored for it, scales
# and zeros included. Which step to the left costs the least? Is the asymmetric grid worth its
# name here, and why not more?

# %%


def share(back):
    return float((back - weight).abs().mean() / weight.abs().mean())


points = {"INT8 a row": [(int8.quantize(weight), int8.dequantize)]}
for name, symmetric in (("INT4, symmetric", True), ("INT4, asymmetric", False)):
    points[name] = [
        (int4.quantize(weight, size, symmetric=symmetric), int4.dequantize)
        for size in (16, 32, 64, 128, 256)
    ]
fig, ax = draw.figure(6.5, 3)
for (name, made), colour in zip(points.items(), draw.PALETTE, strict=False):
    bits = [8 * rounded.nbytes / weight.numel() for rounded, _ in made]
    errors = [100 * share(back(rounded)) for rounded, back in made]
    ax.semilogy(bits, errors, "o-", color=colour, label=name)
    print(name, [f"{b:.2f} bits {e:.1f}%" for b, e in zip(bits, errors, strict=True)])
ax.set(xlabel="bits a weight", ylabel="error, %", title="groups of 16 to 256 inputs")
ax.legend()
draw.show(fig)

# %% [markdown]
# ## Worse weights, better products
#
# Groups of 32, rounded to the nearest and by your GPTQ. To the left the error of the weights, to the
# right that of the products with inputs that calibration has not seen. How many calibration inputs does
# it take until GPTQ is worth anything? What does it do with 32 of them, fewer than a row has weights?

# %%


def of_products(back):
    right = held_out @ weight.t()
    return float((held_out @ back.t() - right).square().mean() / right.square().mean())


nearest = int4.dequantize(int4.quantize(weight, 32))
counts = [32, 64, 128, 256, 512, 1024, 2048]
weights_off, products_off = [], []
for count in counts:
    hessian = part.Hessian(weight.shape[1])
    hessian.add(calibration[:count])
    back = int4.dequantize(gptq.quantize(weight, hessian.hessian, 32))
    weights_off.append(100 * share(back))
    products_off.append(of_products(back))
fig, axes = draw.figure(9, 3, 1, 2)
for ax, ours, theirs, title in (
    (axes[0], weights_off, 100 * share(nearest), "weights: mean error, %"),
    (axes[1], products_off, of_products(nearest), "products: mean square error, as a share"),
):
    ax.semilogx(counts, ours, "o-", color=draw.BLUE, base=2, label="GPTQ")
    ax.axhline(theirs, color=draw.GREY, linestyle="--", label="to the nearest")
    ax.set(xlabel="calibration inputs", title=title, ylim=(0, 1.3 * max(*ours, theirs)))
    ax.legend()
draw.show(fig)
print(f"weights off by {weights_off[-1]:.1f}%, to the nearest {100 * share(nearest):.1f}%")
print(f"products off by {products_off[-1]:.5f}, to the nearest {of_products(nearest):.5f}")

# %% [markdown]
# ## A loud head beside a quiet one
#
# Two heads of one token, the second a hundred times quieter, through your pool. What would the second
# line look like if the token had one scale for both heads?

# %%
pool = part.Int8KVPool([KVLayerSpec(2, 32)], 2, 4, torch.float32, torch.device("cpu"))
head = torch.sin(torch.arange(32) / 3)
k = torch.stack([head, head.roll(5) / 100])[None]
pool.write(0, k, k, torch.tensor([6]))
got = pool.gather(0, torch.tensor([[1]]))[0][0, 2]
fig, axes = draw.figure(9, 2.4, 1, 2)
for ax, before, after, name in zip(axes, k[0], got, ("loud", "quiet"), strict=True):
    ax.plot(before, color=draw.PALE, linewidth=5, label="written")
    ax.plot(after, color=draw.BLUE, label="gathered")
    ax.set(title=f"the {name} head", xlabel="dimension")
axes[0].legend()
draw.show(fig)
numbers = [float(one) for one in pool.scales(0)[0][1, 2]]
print(f"scales: {numbers[0]:.5f} and {numbers[1]:.7f}")

# %% [markdown]
# ## Change this and see
#
# 1. Take `mlp.down_proj` for the weight, with random inputs. What does GPTQ gain when no two inputs have
#    anything to do with each other?
# 2. Give `gptq.quantize` a damping of 0.0001, then of 1. Which side of the third picture moves more?
# 3. Multiply one column of the weight by 50 before you round it. Which of the groups suffer?
