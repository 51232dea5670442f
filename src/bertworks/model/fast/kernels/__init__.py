"""C kernels for training on a CPU: everything but the matrix products, and without AMX also the products of layers.

torch computes one operation at a time, each of which reads and writes all of its operands. A kernel does several in
one pass. Kernels are for training in bfloat16; without them torch's operations compute the same up to rounding.

    build.py       compiles the kernels on this machine
    functions.py   the functions on tensors
    signatures.py  the parameters of the functions in C
"""
