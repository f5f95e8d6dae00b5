"""Triton kernels of layers that keep a state: `conv`, `delta`, `scan`, and what is `around` them.
`tiles` is what they share.

Each rule comes in two forms. The `step` form takes a sequence's tokens one by one, with the state in
registers: decodes, and chunks of up to FEW tokens, as they verify drafts. The `chunks` form takes CHUNK
tokens at once, in products of matrices. A sequence's length decides which of them it gets. The kernels
read it on the device: a launch that is recorded in a CUDA graph fits any lengths within its bounds.
"""

from yaie.core.interpreter import repair

repair()
