"""Faster implementations of the modules in the parent folder. Without this folder everything works, but slower.

backend.py           chooses how a batch is computed; the compiled layer
attention.py         attention without padding, in blocks, with masks from a key
cpu.py, kernels/     layers in C for training in bfloat16 on a CPU
products.py          matrix products of training on a CPU
onednn.py            inference on a CPU
"""
