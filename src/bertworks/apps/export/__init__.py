"""A trained folder for other engines: ONNX Runtime, or code compiled for this machine.

In reading order:

    config.py        the settings of an export
    folder.py        the export itself: `export`
    graph.py         a model as an ONNX graph
    quantization.py  the same in int8
    compiled.py      a model as compiled code
    samples.py       the texts that source and export are compared on
    certificate.py   what was measured; `verify`
    card.py          README.md of an exported folder
    advice.py        which engine is fastest on this machine: `advise`
    workers.py       an engine in a process of its own, for `advise`

`inference/exported.py` runs exported folders.
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from .advice import advise as advise
    from .certificate import verify as verify
    from .config import ExportConfig as ExportConfig
    from .folder import export as export

__all__, __getattr__, __dir__ = lazy_names(__name__)
