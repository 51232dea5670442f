"""What training on a CPU computes between its matrix products, in C; and the products of layers where there is no AMX.

torch computes one operation at a time, each of which reads and writes all of its operands. A kernel does several in
one pass. Kernels are for training in bfloat16; without them torch's operations compute the same up to rounding.

    build.py       compiles them on the machine that uses them
    functions.py   the functions on tensors
    signatures.py  the parameters of the functions in C
"""
