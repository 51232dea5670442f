"""A model folder as an ONNX graph, with a certificate of how much its scores differ.

In reading order:

    folder.py        the export itself: `export`
    exportable.py    a forward pass that keeps padding, so that its graph is valid for any batch
    graph.py         a model as an ONNX graph, in float32 or int8
    samples.py       the texts that source and export are compared on
    certificate.py   the measured differences; `verify`
    card.py          README.md of an exported folder
    comparison.py    which engine is fastest on this machine: `compare`

`inference/exported.py` runs exported folders.
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from .certificate import verify as verify
    from .comparison import compare as compare
    from .folder import export as export

__all__, __getattr__, __dir__ = lazy_names(__name__)
