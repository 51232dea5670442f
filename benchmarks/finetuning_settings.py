"""The settings of fine-tuning that both sides of the benchmarks share, task by task."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Settings:
    """What both sides do. `data` and `model` are where this machine has them."""

    kind: str  # glue, conll or squad
    epochs: float = 3.0  # int(training rows or windows * epochs / batch_size) steps
    rows: int | None = None  # the first so many training rows (documents of CoNLL, questions of SQuAD); None: all
    dev_rows: int | None = None
    seeds: int | None = None  # how many of the seeds; None: all
    batch_size: int = 32
    max_seq_length: int = 128
    lr: float = 5e-5
    schedule: str = "linear"  # up over the first `warmup` of the steps, then down to 0
    warmup: float = 0.1
    optimizer: str = "AdamW with bias correction"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01  # not on biases and LayerNorm
    clip: float = 1.0
    dropout: float = 0.1  # in encoder and classifier
    padding: str | bool = False  # transformers: False pads a batch to its longest row, "max_length" all rows alike
    precision: str = "bfloat16 autocast"  # of training; the weights are float32
    evaluation: str = "float32"
    context: str | None = None
    max_query_length: int | None = None
    doc_stride: int | None = None  # tokens between the starts of two windows
    n_best: int | None = None
    max_answer_length: int | None = None
    data: Path = Path("../shared/data")
    model: Path = Path()

    def recorded(self) -> dict[str, Any]:
        """The settings without those that only this machine has."""
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if k not in ("data", "model", "seeds")}


SQUAD = Settings(
    "squad",
    epochs=2,
    seeds=1,
    max_seq_length=384,
    max_query_length=64,
    doc_stride=128,
    n_best=20,
    max_answer_length=30,
)
TASKS = {
    "mrpc": Settings("glue"),
    "rte": Settings("glue"),
    "cola": Settings("glue"),
    "stsb": Settings("glue"),
    "sst2": Settings("glue", epochs=2, rows=10_000),
    "qnli": Settings("glue", epochs=2),
    "conll2003": Settings("conll", context="document windows"),
    "squad1": SQUAD,
    "squad2": SQUAD,
}


FOLDERS = {"mrpc": "glue/MRPC", "rte": "glue/RTE", "cola": "glue/CoLA", "stsb": "glue/STS-B", "sst2": "glue/SST-2"}
FOLDERS |= {"qnli": "glue/QNLI", "conll2003": "conll2003", "squad1": "squad", "squad2": "squad"}
FILES: dict[str, dict[str, Any]] = {  # parts of the official files, all that is at hand
    "squad1": {"train": "train-v1.1-13pct.json"},
    "squad2": {"train": "small-train-v2.0.json", "dev": "small-dev-v2.0.json"},
}
