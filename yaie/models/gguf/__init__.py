"""GGUF, llama.cpp's format: one file that holds weights, configuration and tokenizer.

`described` makes a folder in Hugging Face layout of it, in YAIE's cache: configuration (`config`),
tokenizer (`tokenizer`) and a list of tensors (`names`) that says where in the file each one lies. The
weights stay where they are, and are read from there (`stored`, `blocks`). From then on a GGUF is a
model's folder like any other. Nothing here is imported unless a GGUF is served.

The format: https://github.com/ggml-org/ggml/blob/01f0d4da3e444ca2bfe705e72adab08a4394bb1d/docs/gguf.md
"""
