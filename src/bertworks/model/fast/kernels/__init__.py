"""What training on a CPU computes between its matrix products, in C; and the products of layers where there is no AMX.

torch computes one operation at a time, each of which reads and writes all of its operands. A kernel does several in
one pass. Kernels are for training in bfloat16; without them torch's operations compute the same up to rounding.
"""

from .build import load as load
from .functions import ROWS as ROWS
from .functions import WIDE as WIDE
from .functions import WIDTH as WIDTH
from .functions import AttentionShape as AttentionShape
from .functions import Dropout as Dropout
from .functions import Kernels as Kernels
from .functions import Rows as Rows
