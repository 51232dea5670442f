"""The loss curve of BERT-BASE on a GPU, a kill and a resume, and what saving costs. Stage `curve` of gpu.sh.

    benchmarks/gpu.sh curve [--corpus STORE | --data FOLDER] [--out FOLDER] [--minutes 9] [--smoke]
    benchmarks/gpu.sh curve --device cpu --batch 32 --log-every 1 --save-steps 0 --out OTHER

One run of BASE at length 128 with the project's own pre-training. The run is killed with SIGKILL at a third of the
time, and resumed. The learning rate follows --steps, whatever is reached of them in the minutes. So two devices with
equal --steps and --batch train on the same batches at the same rates, and their curves can be compared step by step.
The second command makes the curve of the CPU; give the GPU --batch 32 too for such a comparison. Dropout is 0 by
default, since a GPU draws other masks than a CPU. curve.json has:

- `train`, `eval`: the records of the run's log.
- `kill`: the step that the killed process had logged last, the saved step from which the next process continued, and
  of the steps that both have logged the largest difference of the losses. Sums on a GPU differ in their last bits.
- `saving`: how long the loop waits while a state is copied, and how much longer steps take while it is written
  (saving.py), with --save-steps steps between two saves.
"""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import gpu_common
import saving
import tiny
from bertworks.data.instances import InstanceConfig
from bertworks.data.store import Store
from bertworks.model.presets import PRESETS
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.pretraining.run import pretrain
from bertworks.reporting.run_files import LOG, read_log
from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.state import saved_step

SHARE = 1 / 3  # of the run's time, after which it is killed
SAVED = 0.5  # minutes between two saves of the run
SAVING = 110.0  # seconds for the measurement of saving, at most
RESERVE = 25.0  # seconds for the end of the command
SMOKE = {
    **{"device": "cpu", "steps": 6, "batch": 4, "megabytes": 0.05, "log_every": 1, "save_steps": 1},
}


def recipe(vocab_size: int, steps: int, batch: int, dropout: float, small: bool, log_every: int) -> PretrainConfig:
    """BASE at length 128; `small`: the encoder of tiny.py at length 16."""
    shape = replace(
        tiny.SHAPE if small else PRESETS["base"],
        vocab_size=vocab_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return PretrainConfig(
        model=shape,
        instances=InstanceConfig(dupe_factor=0),
        optim=OptimConfig(lr=1e-4, rule="adamw", warmup=0.05),
        loop=LoopConfig(steps=steps, eval_every=0, save_every=0, save_minutes=SAVED, log_every=log_every),
        phases=(Phase(16 if small else 128, 1.0, batch),),
        eval_batches=1 if small else 20,
    )


def segment(store: str, out: str, seconds: float, until: int, **settings: Any) -> common.Result:
    """Train for so many seconds, or until a step if it is not 0; whether the run is finished.

    The process began a moment before: imports count too, so that a command ends in time.
    """
    begun = time.perf_counter()
    config = recipe(Store.open(Path(store), verify=False).vocab_size, **settings)

    def stop(kind: str, record: Mapping[str, Any]) -> bool:
        return time.perf_counter() - begun > seconds or bool(until and record["step"] >= until)

    done = pretrain(config, Path(store), Path(out), quiet=True, watch=stop)
    return {"finished": done is not None, "metrics": done["metrics"] if done else {}}


def one_side(what: str, **given: Any) -> common.Result:
    """What a process of this script does: a segment of the run, or the measurement of saving."""
    return segment(**given) if what == "segment" else gpu_common.attempted(lambda: saving.one_run(**given))


def killed(given: Mapping[str, Any], out: Path, device: str, seconds: float) -> common.Result:
    """Start a segment and kill it after so many seconds, or later when it has saved a state and logged what follows."""
    process = gpu_common.started(one_side, {"what": "segment", **given, "seconds": 10 * seconds, "until": 0}, device)
    begun = time.monotonic()
    try:
        while process.poll() is None and time.monotonic() - begun < 2 * seconds:
            time.sleep(0.2)
            if time.monotonic() - begun > seconds and last_step(out) > (saved_step(out / "state") or 0) > 0:
                break
        ended = process.poll()
    finally:
        gpu_common.kill(process)
    return {"how": "SIGKILL", "after_seconds": time.monotonic() - begun, "ended_before": ended}


def last_step(out: Path) -> int:
    """The last step in the run's log; 0 if there is none."""
    return max((int(record["step"]) for record in read_log(out)), default=0) if (out / LOG).exists() else 0


def compared(before: list[dict[str, Any]], after: list[dict[str, Any]], saved: int) -> common.Result:
    """The losses of the steps behind the saved one, which both processes have computed."""
    ours = {one["step"]: one["mlm_loss"] for one in after if one["step"] > saved}
    twice = [abs(one["mlm_loss"] - ours[one["step"]]) for one in before if one["step"] in ours]
    return {"logged_twice": len(twice), "largest_difference": max(twice, default=None)}


def train(options: Any, store: Path, out: Path, seconds: float) -> common.Result:
    """The run in two processes, of which the first is killed: curves and what the second continued from."""
    given: dict[str, Any] = {"store": str(store), "out": str(out), "small": options.smoke}
    given |= {name: getattr(options, name) for name in ("steps", "batch", "dropout", "log_every")}
    if options.smoke:  # this process cannot kill itself
        stop = segment(**given, seconds=1e9, until=options.steps // 2)
        found: common.Result = {"kill": {"how": "stopped", "ended_before": stop["finished"]}}
    else:
        found = {"kill": killed(given, out, options.device, SHARE * seconds)}
        seconds -= found["kill"]["after_seconds"]
    before = gpu_common.curve(read_log(out), "train") if (out / LOG).exists() else []
    saved = saved_step(out / "state") or 0
    found["kill"] |= {"logged_step": before[-1]["step"] if before else 0, "saved_step": saved}
    rest = {"what": "segment", **given, "seconds": seconds, "until": 0}
    found["rest"] = gpu_common.run_side(one_side, rest, options.device, seconds + RESERVE, options.smoke)
    records = read_log(out) if (out / LOG).exists() else []
    found |= {kind: gpu_common.curve(records, kind) for kind in ("train", "eval")}
    found["kill"] |= compared(before, found["train"], saved)
    return found


def cost_of_saving(options: Any, store: Path) -> common.Result:
    """What saving.py measures, with this stage's batch."""
    given = {"what": "saving", "store": str(store), "blocks": 1 if options.smoke else 2, "steps": options.save_steps}
    given |= {"batch": options.batch, "small": options.smoke}
    return gpu_common.run_side(one_side, given, options.device, SAVING, options.smoke)


def main(argv: list[str] | None = None) -> None:
    """Train, kill, resume, measure saving, write curve.json."""
    if common.answer(one_side, argv):
        return
    made = gpu_common.parser(__doc__, minutes=9.0)
    gpu_common.add_corpus(made, megabytes=80)
    made.add_argument("--steps", type=int, default=6000, help="of the whole schedule, whatever the minutes allow")
    made.add_argument("--batch", type=int, default=256, help="sequences of an update")
    made.add_argument("--dropout", type=float, default=0.0)
    made.add_argument("--log-every", type=int, default=10, help="steps between two points of the curve")
    made.add_argument("--save-steps", type=int, default=60, help="steps of a block of saving.py; 0: not measured")
    with common.parsed(made, argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        device = gpu_common.need_device(options.device)
        names = ("steps", "batch", "dropout", "log_every", "save_steps")
        settings = {name: getattr(options, name) for name in names}
        store = gpu_common.corpus(options, Path(work))
        gpu_common.set_aside(options, "curve")
        result: common.Result = {"machine": gpu_common.facts(device), "settings": settings}
        result["corpus"] = Store.open(store, verify=False).fingerprint
        if options.save_steps:
            result["saving"] = cost_of_saving(options, store)
            gpu_common.keep(options, "curve", result)
        seconds = gpu_common.seconds_left(options) - RESERVE
        result |= train(options, store, Path(work) / "run", seconds)
        gpu_common.finish(options, "curve", result)


if __name__ == "__main__":
    main()
