"""The loop: accumulation, budgets, phases, what is not finite, a full disk."""

import dataclasses
import math
import signal
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from bertworks.data.opening import open_store
from bertworks.data.prefetch import Prefetcher
from bertworks.files import Diverged, InputError
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.pretraining.run import PretrainingFeed
from bertworks.reporting.log import read_log
from bertworks.training import distributed
from bertworks.training import loop as loop_module
from bertworks.training import trainer as trainer_module
from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.objectives import PretrainingObjective
from bertworks.training.state import load_state
from bertworks.training.trainer import AccumulationBatch, Trainer
from bertworks.training.vocabulary_loss import Term
from support.loops import ALONE, IDENTITY, loop_of, stopped_before
from support.segments import TIMING

TINY = dict(
    vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=40,
)  # fmt: skip


def model_of(dropout=0.0, seed=1):
    config = ModelConfig(**TINY, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return build_model(config, seed=seed)


def batches(tiny_store, count=6, size=4):
    """Unmasked positions vary from batch to batch, so that a mean of means is not the mean."""
    from bertworks.data.instances import StreamPosition

    data, position, made = tiny_store.data(24), StreamPosition(), []
    for _ in range(count):
        batch, position = data.take(position, size)
        made.append(batch)
    return made


def feed(tiny_store, *phases, steps=10):
    config = PretrainConfig(model=ModelConfig(**TINY), phases=phases, loop=LoopConfig(steps=steps))
    return PretrainingFeed(config, open_store(tiny_store.path), tiny_store.data().vocabulary, ALONE, Prefetcher)


def gradient_of(model, groups, folder):
    """The first gradient, before clipping, in one vector."""
    loop, seen = loop_of(model, groups, folder, steps=1), []
    clip = loop.trainer.optimizer.clip_grad_norm

    def note():
        seen.append(torch.cat([p.grad.flatten().double() for p in model.parameters()]))
        return clip()

    loop.trainer.optimizer.clip_grad_norm = note
    loop.train()
    return seen[0], read_log(folder)[0]


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_one_batch_of_16_is_four_of_4_is_sixteen_of_1(tiny_store, tmp_path, dropout):
    whole, record = gradient_of(model_of(dropout), feed(tiny_store, Phase(24, 1.0, 16)), tmp_path / "whole")
    assert whole.norm() > 0.1
    for micro in (4, 7, 1):
        phase = Phase(24, 1.0, 16, micro_batch_size=micro)
        parts, same = gradient_of(model_of(dropout), feed(tiny_store, phase), tmp_path / str(micro))
        assert (whole - parts).norm() < 1e-6 * whole.norm()
        for key in ("mlm_loss", "nsp_loss", "tokens", "grad_norm"):
            assert same[key] == pytest.approx(record[key], rel=1e-6)


def test_terms_are_divided_by_the_counts_of_the_whole_group(tiny_store, tmp_path):
    one, two = batches(tiny_store, 2)
    two["masked_labels"][5:] = -100
    two["pair_labels"][1:] = -100
    found, record = gradient_of(model_of(), [[one, two]], tmp_path)
    model, objective = model_of(), PretrainingObjective()
    n = {name: sum(objective.counts(batch)[name] for batch in (one, two)) for name in ("mlm", "nsp")}
    assert n["nsp"] == 5
    terms = [objective(model, batch) for batch in (one, two)]
    mlm, nsp = (sum(t[name].loss for t in terms) / n[name] for name in ("mlm", "nsp"))
    (mlm + nsp).backward()
    expected = torch.cat([p.grad.flatten().double() for p in model.parameters()])
    assert (found - expected).norm() < 1e-6 * expected.norm()
    assert record["mlm_loss"] == pytest.approx(mlm.item(), rel=1e-6)
    assert record["nsp_loss"] == pytest.approx(nsp.item(), rel=1e-6)


def test_a_record_is_the_mean_since_the_last(tiny_store, tmp_path):
    groups = batches(tiny_store)
    logs = []
    for every in (1, 4):
        assert loop_of(model_of(), groups, tmp_path / str(every), steps=10, log_every=every).train()
        logs.append(read_log(tmp_path / str(every)))
    single, several = logs
    assert [r["step"] for r in several] == [4, 8, 10]
    counts = [PretrainingObjective().counts(groups[i % 6])["mlm"] for i in range(10)]
    losses = [r["mlm_loss"] * n for r, n in zip(single, counts, strict=True)]
    for record, part in zip(several, (slice(0, 4), slice(4, 8), slice(8, 10)), strict=True):
        assert record["mlm_loss"] == pytest.approx(sum(losses[part]) / sum(counts[part]), rel=1e-6)
    assert (
        several[-1]["tokens"]
        == single[-1]["tokens"]
        == sum(int(groups[i % 6]["attention_mask"].sum()) for i in range(10))
    )


class Sick(PretrainingObjective):
    """Losses that are not finite at some steps; the gradient is finite if the value is added."""

    def __init__(self, when, value=math.nan, change=torch.mul):
        self.when, self.value, self.change, self.calls = when, value, change, -1

    def terms(self, model, batch, dropout=None):
        self.calls += 1
        terms, sick = super().terms(model, batch, dropout), self.calls in self.when
        return {n: Term(self.change(t.loss, self.value) if sick else t.loss, None) for n, t in terms.items()}


def test_a_step_whose_backward_pass_fails_is_not_counted(tiny_store, tmp_path):
    loop = loop_of(model_of(), batches(tiny_store), tmp_path, steps=2)
    loop.trainer._backward = None
    with pytest.raises(TypeError):
        loop.train()
    assert (loop.progress.step, loop.progress.tokens, loop.progress.instances) == (0, 0, 0)


@pytest.mark.parametrize("used", [0.1, 1.25])
def test_a_record_has_the_cores_that_other_programs_use(tiny_store, tmp_path, monkeypatch, used):
    monkeypatch.setattr("bertworks.workers.openmp.watch", lambda: SimpleNamespace(used=used))
    assert loop_of(model_of(), batches(tiny_store), tmp_path, steps=2).train()
    assert [r.get("cores_used_by_others") for r in read_log(tmp_path)] == [1.25 if used > 1 else None] * 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_update_that_is_not_finite_is_not_made(tiny_store, tmp_path, value):
    groups = batches(tiny_store)
    sick = loop_of(model_of(), groups, tmp_path / "sick", objective=Sick({2, 3, 5}, value), steps=8, max_skipped=2)
    snapshots, update = [], sick.trainer.update

    def watch(*arguments):
        result = update(*arguments)
        snapshots.append(torch.cat([p.detach().flatten().clone() for p in sick.trainer.model.parameters()]))
        return result

    sick.trainer.update = watch
    assert sick.train()
    assert [torch.equal(a, b) for a, b in pairwise(snapshots)] == [
        False, True, True, False, True, False, False,
    ]  # fmt: skip
    assert all(torch.isfinite(s).all() for s in snapshots)
    assert (sick.progress.step, sick.progress.updates) == (8, 5)
    records = read_log(tmp_path / "sick")
    assert [r.get("skipped", 0) for r in records] == [0, 0, 1, 2, 2, 3, 3, 3]
    for name in ("mlm_loss", "grad_norm"):  # a record without any update has no numbers
        assert [record["step"] for record in records if record[name] is None] == [3, 4, 6]
    assert "NaN" not in (tmp_path / "sick" / "log.jsonl").read_text()


def test_updates_that_are_finished_a_step_late_are_the_same(tiny_store, tmp_path, monkeypatch):
    """As on a GPU, which runs behind: the norm of an update is read while the next one is computed."""
    groups, found = batches(tiny_store), []
    for late in (False, True):
        monkeypatch.setattr(Trainer, "is_async", late)
        loop = loop_of(
            model_of(), groups, tmp_path / str(late), objective=Sick({2, 3, 5}), steps=8, max_skipped=2, log_every=4
        )
        finished, finish_update = [], loop.trainer.finish_update

        def note(loop=loop, finished=finished, finish_update=finish_update):
            if loop.trainer._pending:
                finished.append((loop.trainer._pending.step, loop.progress.step))
            finish_update()

        loop.trainer.finish_update = note
        assert loop.train()
        log = [{key: value for key, value in r.items() if key not in TIMING} for r in read_log(tmp_path / str(late))]
        progress = dataclasses.asdict(loop.progress) | {"seconds": 0.0}
        found.append((log, progress, [*loop.trainer.model.state_dict().values()], finished))
    at_once, a_step_late = found
    assert at_once[:2] == a_step_late[:2] and [record["skipped"] for record in at_once[0]] == [2, 3]
    assert all(torch.equal(one, other) for one, other in zip(at_once[2], a_step_late[2], strict=True))
    assert at_once[3] == [(step, step) for step in range(8)]
    assert a_step_late[3] == [(step, step + 1) for step in range(8)]
    with pytest.raises(Diverged, match=r"not finite in 3 steps in a row, the last at step 6\."):
        loop_of(model_of(), groups, tmp_path / "sick", objective=Sick({3, 4, 5}), steps=9, max_skipped=2,
                log_every=0).train()  # fmt: skip


def test_too_many_in_a_row_end_the_run(tiny_store, tmp_path):
    model = model_of()
    loop = loop_of(
        model, batches(tiny_store), tmp_path, objective=Sick({3, 4, 5}), steps=8, max_skipped=2, save_every=2
    )
    with pytest.raises(Diverged, match=r"not finite in 3 steps in a row.*begin again with a lower optim\.lr"):
        loop.train()
    assert load_state(tmp_path / "state", model_of(), loop.trainer.optimizer, IDENTITY).step == 4
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_a_watcher_sees_every_record_and_can_stop_the_run(tiny_store, tmp_path):
    """It stops as a signal does: the state is saved, and the run continues."""
    seen, groups = [], batches(tiny_store)

    def on_record(record):
        seen.append((record["kind"], record["step"]))
        return record["step"] >= 4

    loop = loop_of(model_of(), groups, tmp_path, steps=9, log_every=2)
    loop.run = dataclasses.replace(loop.run, on_record=on_record)
    assert not loop.train() and seen == [("train", 2), ("train", 4)] and loop.progress.step == 4
    assert loop_of(model_of(), groups, tmp_path, steps=9, log_every=2, resumed=True).train()
    assert [record["step"] for record in read_log(tmp_path)] == [2, 4, 6, 8, 9]


def test_budgets(tiny_store, tmp_path, monkeypatch):
    groups = batches(tiny_store)
    with pytest.raises(InputError, match=r"no budget: give one of loop\.steps, loop\.tokens, loop\.hours"):
        loop_of(model_of(), groups, tmp_path / "none").train()
    loop = loop_of(model_of(), groups, tmp_path / "steps", steps=5)
    assert loop.train() and loop.progress.step == 5
    assert loop.trainer.feed.budgets_used == [0, 0.2, 0.4, 0.6, 0.8]

    sizes = [int(batch["attention_mask"].sum()) for batch in groups]
    loop = loop_of(model_of(), groups, tmp_path / "tokens", tokens=sum(sizes[:4]) - 1, steps=100)
    assert loop.train() and (loop.progress.step, loop.progress.tokens) == (4, sum(sizes[:4]))
    assert loop.trainer.feed.budgets_used[1] == pytest.approx(sizes[0] / (sum(sizes[:4]) - 1))

    now = [0.0]

    def clock():
        now[0] += 10.0
        return now[0]

    monkeypatch.setattr(trainer_module, "time", SimpleNamespace(perf_counter=clock))
    loop = loop_of(model_of(), groups, tmp_path / "hours", hours=65 / 3600, eval_every=0)
    assert loop.train() and loop.progress.step == 7 and loop.progress.seconds == 70


def test_phases_change_at_their_share_of_the_budget(tiny_store, tmp_path):
    source = feed(tiny_store, Phase(16, 0.7, 4), Phase(24, 0.2, 2), Phase(40, 0.1, 2), steps=10)
    shapes = []

    def watch(progress, share):
        group = source(progress, share)
        shapes.append((tuple(group.micro_batches[0][0]["input_ids"].shape), group.next_position))
        return group

    assert loop_of(model_of(), watch, tmp_path, steps=10).train()
    assert [shape for shape, _ in shapes] == [(4, 16)] * 7 + [(2, 24)] * 2 + [(2, 40)]
    assert [after for _, after in shapes] == [
        *((0, 0, 4 * i) for i in range(1, 8)), (1, 0, 2), (1, 0, 4), (2, 0, 2),
    ]  # fmt: skip


def test_evaluation_comes_in_time_and_the_best_weights_are_kept(tiny_store, tmp_path):
    scores, seen = iter([0.1, 0.9, 0.3, 0.2, 0.9]), []
    model = model_of()

    def evaluate():
        seen.append(model.state_dict()["heads.nsp.weight"].clone())
        model.eval()
        return {"accuracy": next(scores)}

    loop = loop_of(model, batches(tiny_store), tmp_path, evaluate=evaluate, steps=8, eval_every=2, keep_best="accuracy")
    (tmp_path / "state").mkdir()
    assert loop.train()
    evaluations = [(r["step"], r["accuracy"]) for r in read_log(tmp_path) if r["kind"] == "eval"]
    assert evaluations == [(2, 0.1), (4, 0.9), (6, 0.3), (8, 0.2)]
    assert torch.equal(model.state_dict()["heads.nsp.weight"], seen[1]) and not torch.equal(seen[1], seen[3])
    assert loop.progress.best == 0.9 and loop.metrics == {"accuracy": 0.9}  # evaluated once more


HOLES = """
import torch
from bertworks.training.machine import prepare_process, return_free_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

prepare_process()
kept, passing = [], []
for _ in range(200):
    passing.append(torch.ones(1 << 18))
    kept.append(torch.ones(1 << 10))
passing.clear()
before = resident()
return_free_memory()
print((before - resident()) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_free_memory_between_blocks_is_returned():
    """200 freed buffers of a megabyte, each with a small one behind it that stays."""
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) > 150


def test_an_infinite_loss_with_a_finite_gradient_is_no_update(tiny_store, tmp_path):
    groups = batches(tiny_store)
    infinite = Sick({1, 2}, math.inf, torch.add)
    loop = loop_of(model_of(), groups, tmp_path / "run", objective=infinite, steps=6, log_every=3)
    assert loop.train() and (loop.progress.step, loop.progress.updates) == (6, 4)
    text = (tmp_path / "run" / "log.jsonl").read_text()
    assert "Infinity" not in text and "NaN" not in text
    records = read_log(tmp_path / "run")
    assert [r["skipped"] for r in records] == [2, 2]
    one = loop_of(model_of(), groups, tmp_path / "one", steps=1, log_every=1)  # the only update of that record
    assert one.train() and records[0]["mlm_loss"] == read_log(tmp_path / "one")[0]["mlm_loss"]


def test_a_resumed_run_has_the_weights_and_the_records_of_a_run_left_alone(tiny_store, tmp_path):
    """The record after the resume covers steps from before it."""
    groups, optim = batches(tiny_store), OptimConfig(lr=1e-3)
    whole = loop_of(model_of(0.1), groups, tmp_path / "whole", optim, steps=9, log_every=5)
    assert whole.train()
    first = loop_of(model_of(0.1), groups, tmp_path / "parts", optim, steps=9, log_every=5, save_every=3)

    first.trainer.feed = stopped_before(4, groups)  # after the state of step 3 was saved
    with pytest.raises(KeyboardInterrupt):
        first.train()
    second = loop_of(model_of(0.1, seed=2), groups, tmp_path / "parts", optim, steps=9, log_every=5, resumed=True)
    assert second.progress.step == 3 and second.train()
    states = [loop.trainer.model.state_dict() for loop in (whole, second)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    keys = ("step", "mlm_loss", "nsp_loss", "lr", "grad_norm", "tokens")
    logs = [[[record[key] for key in keys] for record in read_log(tmp_path / name)] for name in ("whole", "parts")]
    assert logs[0] == logs[1] and [record[0] for record in logs[0]] == [5, 9]


def test_judging_is_in_float32_whatever_training_uses(tiny_store, tmp_path):
    seen, model = [], model_of()

    def judge():
        model.eval()
        out = model.encoder(torch.tensor([[2, 5, 3]]))
        seen.append((torch.is_autocast_enabled("cpu"), out.last_hidden_state.dtype))
        return {"accuracy": out.last_hidden_state.sum().item()}

    loop = loop_of(model, batches(tiny_store), tmp_path, evaluate=judge, steps=4, eval_every=2, precision="bfloat16")
    assert loop.train()
    assert seen == [(False, torch.float32)] * 2
    assert judge()["accuracy"] == [r for r in read_log(tmp_path) if r["kind"] == "eval"][-1]["accuracy"]
    assert loop.metrics == judge()


def test_the_best_loss_is_the_lowest_and_a_score_that_is_no_number_is_never_the_best(tiny_store, tmp_path):
    scores = iter([math.nan, 3.0, 1.0, 2.0, 1.0])
    loop = loop_of(model_of(), batches(tiny_store), tmp_path, evaluate=lambda: {"mlm_loss": next(scores)}, steps=4,
                   eval_every=1, keep_best="mlm_loss")  # fmt: skip
    assert loop.train() and loop.progress.best == 1.0
    assert "NaN" not in (tmp_path / "log.jsonl").read_text()


def test_damaged_best_weights_are_refused_by_name(tiny_store, tmp_path):
    model = model_of()
    loop = loop_of(model, batches(tiny_store), tmp_path, evaluate=lambda: {"f1": 0.5}, steps=2, keep_best="f1")
    best = tmp_path / "state" / loop_module.BEST
    evaluate = loop._evaluate_and_log

    def damage(*given):
        metrics = evaluate(*given)
        best.write_bytes(best.read_bytes()[:50])
        return metrics

    loop._evaluate_and_log = damage
    with pytest.raises(InputError, match=r"best\.safetensors: not a whole state"):
        loop.train()


def stopped_at(step, loop):
    """The loop with a SIGHUP while it trains this step."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
    feed = loop.trainer.feed

    def stop(progress, share):
        if progress.step == step - 1:
            signal.raise_signal(signal.SIGHUP)
        return feed(progress, share)

    loop.trainer.feed = stop
    return loop


def test_a_stop_in_the_last_step_does_not_wait_for_the_last_evaluation(tiny_store, tmp_path, monkeypatch):
    groups, judged = batches(tiny_store), []

    def judge():
        judged.append(True)
        return {"f1": 0.5}

    assert not stopped_at(4, loop_of(model_of(), groups, tmp_path, evaluate=judge, steps=4)).train()
    assert not judged
    again = loop_of(model_of(), groups, tmp_path, evaluate=judge, steps=4, resumed=True)
    assert again.train() and judged == [True]
    assert [(r["kind"], r["step"]) for r in read_log(tmp_path)] == [*(("train", i) for i in range(1, 5)), ("eval", 4)]


@pytest.mark.parametrize("during", [True, False])
def test_a_stop_at_the_very_end_comes_at_once_and_leaves_one_record(tiny_store, tmp_path, during):
    """A signal in the last evaluation, or a kill after it: the rerun evaluates again, and replaces the record."""
    groups, judged = batches(tiny_store), []

    def judge():
        if during and not judged:
            judged.append("asked")
            signal.raise_signal(signal.SIGTERM)
        judged.append("answered")
        return {"f1": 0.5}

    loop = loop_of(model_of(), groups, tmp_path, evaluate=judge, steps=4, eval_every=2)
    if during:
        loop.compute_metrics = lambda progress: judge() if progress.step == 4 else {"f1": 0.1}
        with pytest.raises(KeyboardInterrupt):
            loop.train()
        assert judged == ["asked"]
    else:
        assert loop.train()
    again = loop_of(model_of(), groups, tmp_path, evaluate=judge, steps=4, eval_every=2, resumed=True)
    assert again.train()
    kinds = [(r["kind"], r["step"]) for r in read_log(tmp_path)]
    assert kinds == [("train", 1), ("train", 2), ("eval", 2), ("train", 3), ("train", 4), ("eval", 4)]


@pytest.mark.parametrize(
    ("name", "value"), [("steps", -5), ("hours", math.nan), ("log_every", -1), ("seed", -1), ("seed", 2**63)]
)
def test_numbers_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} = .*{value}; expected "):
        LoopConfig(**{name: value})


def test_the_seed_of_a_gpu_is_within_its_range(tiny_store, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seen.append)
    loop = loop_of(model_of(), batches(tiny_store), tmp_path, steps=1, seed=2**63 - 1)
    loop.trainer.world = distributed.World(0, 1, torch.device("cuda"))
    assert [loop.trainer._dropout_key(row) for row in (0, 1)] == [None, None]
    assert len({*seen}) == 2 and all(0 <= seed < 2**63 for seed in seen)


@pytest.mark.parametrize("compiles", [False, True])
def test_steps_that_compile_are_no_part_of_a_budget_in_hours(tiny_store, tmp_path, monkeypatch, compiles):
    """Else a warm-up of a few minutes is over when the layers are compiled."""
    clock, shares, (group,) = SimpleNamespace(now=0.0, graphs=0), [], batches(tiny_store, 1)

    def feed(progress, share):
        shares.append(share)
        slow = progress.step in (0, 1, 4)  # a second phase has other sizes
        clock.now += 10.0 if slow else 1.0
        clock.graphs += compiles and slow
        return AccumulationBatch([(group, 0)], (0, 0, progress.step + 1))

    monkeypatch.setattr(trainer_module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(trainer_module, "graphs_made", lambda: clock.graphs)
    loop = loop_of(model_of(), feed, tmp_path, hours=4 / 3600)
    assert loop.train()
    assert shares == ([0, 0, 0, 0.25, 0.5, 0.5, 0.75] if compiles else [0])
    assert loop.progress.seconds == (4 if compiles else 10)
    assert read_log(tmp_path)[0]["seconds"] == (0 if compiles else 10)
