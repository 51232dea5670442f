"""The commands that kills.py kills, and what they read beside the inputs of hostile.py."""

import shutil
from pathlib import Path
from typing import Any

from bertworks.files import write_json

TABLES = "--train {base}/single.csv --dev {base}/single.csv --model {base}/model --out out --max-seq-length 24"
COMMANDS = {
    "tokenizer train": "tokenizer train {base}/text.txt {base}/corpus-text --out out --vocab-size 120",
    "corpus build": "corpus build {base}/corpus-text --tokenizer {base}/tok --out out --workers 2 --shard-tokens 500 "
    "--input.documents blank-line",
    "pretrain": "pretrain {base}/recipe.toml --corpus {base}/store --out out --loop.steps 30 --loop.save-every 3",
    "pretrain, 2 processes": "pretrain {base}/recipe.toml --corpus {base}/store --out out --loop.steps 30 "
    "--loop.save-every 3",
    "pretrain, always saving": "pretrain {base}/recipe.toml --corpus {base}/store --out out --loop.steps 30 "
    "--loop.save-every 1",
    "pretrain, batches ahead": "pretrain {base}/recipe.toml --corpus {base}/store --out out --loop.steps 30 "
    "--loop.save-every 3 --workers 2",
    "finetune, keep_best": f"finetune {TABLES} --batch-size 4 --epochs 6 --loop.eval-every 3 --loop.save-every 2 "
    "--loop.keep-best accuracy",
    "finetune, seeds": f"finetune {TABLES} --batch-size 4 --epochs 2 --loop.save-every 2 --seeds 1 2 3",
    "sweep": f"study sweep {TABLES} --grid glue",
    "distill": "distill {base}/distill.toml --teacher {base}/run-pretrain --corpus {base}/store --out out",
    "study": "study run {base}/study/study.toml --corpus {base}/store --data {base}/data --out out",
    "features": "features {base}/model {base}/long.txt --out out.safetensors",
    "predict": "predict {base}/run-single {base}/long.txt --out out.jsonl",
    "predict, echo": "predict {base}/run-single {base}/long.csv --echo --out out.jsonl",
    "predict, table": "predict {base}/run-single {base}/long.csv --echo --out out.csv",
    "convert": "convert {base}/model out",
    "export, int8": "export {base}/run-single --precision int8 --out out",
    "explain": "probe explain {base}/run-single 'good film a b c' --out out.html",
    "finetune, embedding": f"finetune --kind embedding {TABLES} --text text,other --label score --batch-size 4 "
    "--epochs 2 --loop.save-every 2",
    "pretrain, texts": "pretrain {base}/recipe.toml --texts {base}/corpus-text --corpus store --out out --loop.steps 8 "
    "--loop.save-every 2",
    "pretrain korean, texts": "pretrain korean --texts {base}/korean --language ko --corpus store --out out "
    "--model.hidden-size 8 --model.num-hidden-layers 1 --model.num-attention-heads 2 --model.intermediate-size 16 "
    "--model.vocab-size 100 --loop.hours 0 --loop.steps 8 --loop.save-every 2 --loop.eval-every 4 --eval-batches 1",
    "sweep, own grid": f"study sweep {TABLES} --grid 'optim.lr=1e-4,3e-4 epochs=1' --batch-size 4 --seeds 1 2",
    "finetune in Python": "bertworks.finetune({base}/model, train=DataFrame)",
}
ONCE = ("convert",)  # commands that refuse an output that is there
WHOLE = ("tokenizer train", "features", "predict", "convert", "export", "explain")
DISTILL = """
eval_batches = 2
[optim]
lr = 2e-3
[loop]
steps = 24
log_every = 1
eval_every = 10
save_every = 3
precision = "float32"
compute = "eager"
[[phases]]
length = 24
batch_size = 8
"""


def more_inputs(base: Path) -> None:
    """What the commands read beside the inputs of hostile.py."""
    if not (base / "distill.toml").exists():
        (base / "long.txt").write_text((base / "text.txt").read_text() * 20)
        rows = (base / "single.csv").read_text()
        (base / "long.csv").write_text(rows + rows.partition("\n")[2] * 20)
        korean = ["한국어 문장입니다. 좋은 영화.", "나쁜 영화였다. 음악이 없다.", "학교에 갔다. 책을 읽었다."]
        (base / "korean").mkdir(exist_ok=True)
        for i in range(12):
            (base / f"korean/{i}.txt").write_text(
                "".join(f"{text} {i + n}번째 글.\n" for n in range(9) for text in korean)
            )
        shutil.copytree(base / "cola", base / "data/cola", dirs_exist_ok=True)
        (base / "distill.toml").write_text(DISTILL)


def in_python(command: str) -> None:
    """Fine-tune as a notebook does, and write the metrics that are returned."""
    import pandas

    import bertworks

    base = Path(command.partition("(")[2].partition("/model,")[0])
    frame = pandas.read_csv(base / "single.csv")
    how: dict[str, Any] = {"batch_size": 4, "epochs": 3, "max_seq_length": 24, "loop": {"save_every": 2}, "quiet": True}
    run = bertworks.finetune(base / "model", "out", train=frame, dev=frame, **how)
    write_json("metrics.json", run.metrics)
