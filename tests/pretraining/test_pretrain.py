"""Pre-training as a user meets it: the run folder, continuing from a model, and one clear message for bad input."""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import bertworks
from bertworks.checkpoint.folder import load_model, save_folder
from bertworks.cli import main
from bertworks.config import RECIPES, load_recipe
from bertworks.data.batches import PretrainingData, Vocabulary
from bertworks.data.build import BuildConfig
from bertworks.data.build import build as build_store
from bertworks.data.corpus import InputOptions
from bertworks.data.instances import StreamPosition
from bertworks.data.masking import MaskingConfig
from bertworks.data.opening import open_store
from bertworks.data.store import Store
from bertworks.files import InputError
from bertworks.model import acceleration
from bertworks.model.build import build_model
from bertworks.pretraining import estimate as estimating
from bertworks.pretraining.estimate import estimate
from bertworks.pretraining.job import check_vocabulary, identity_of, of_shape, open_training, pretrain, start_model
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.reporting.log import read_log
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from bertworks.training.identity import Run
from conftest import tiny_texts
from support.loops import ALONE
from support.segments import write_recipe


@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    """Curves take longer to draw than a tiny run; `trained`, which is made before, has them."""
    monkeypatch.setattr("bertworks.cli.pretrain.draw_curves", lambda run: None)


def line(recipe, store, out, *more):
    return ["pretrain", str(recipe), "--corpus", str(store), "--out", str(out), *more]


@pytest.fixture(scope="module")
def trained(tiny_store, tmp_path_factory):
    """A short run by the command line, with an override."""
    folder = tmp_path_factory.mktemp("trained")
    main(line(write_recipe(folder, steps=6), tiny_store.path, folder / "run", "--optim.lr", "5e-3"))
    return folder / "run"


def test_the_run_folder(tiny_store, trained):
    expected = [".lock", "curves.png", "curves.svg", "log.jsonl", "model", "recipe.toml", "results.json", "state"]
    assert sorted(p.name for p in trained.iterdir()) == expected
    results = json.loads((trained / "results.json").read_text())
    assert results["kind"] == "pretrain" and results["steps"] == 6 and results["seed"] == 12345
    metrics = results["metrics"]
    assert {"mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy", "unigram_entropy"} <= metrics.keys()
    assert 0 <= metrics["mlm_accuracy"] <= 1 and 0.2 < metrics["nsp_accuracy"] < 0.8
    assert {"cpu", "torch", "commit", "threads"} <= results["machine"].keys()
    assert load_recipe(trained / "recipe.toml", PretrainConfig).optim.lr == 5e-3  # the override is in it
    model = load_model(trained / "model")
    assert list(model.heads) == ["mlm", "nsp"] and model.config.hidden_size == 16
    assert Tokenizer.load(trained / "model").vocab_size == tiny_store.vocab_size
    records = [json.loads(text) for text in (trained / "log.jsonl").read_text().splitlines()]
    wanted = {"step", "mlm_loss", "nsp_loss", "lr", "grad_norm", "tokens", "tokens_per_second",
              "memory", "seconds", "left"}  # fmt: skip
    assert all(wanted <= record.keys() for record in records if record["kind"] == "train")
    assert records[-1]["kind"] == "eval" and records[-2]["left"] == 0


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 1e-2)])
def test_the_reference_has_the_losses_of_the_faster_methods(
    tiny_store, tmp_path, monkeypatch, capsys, precision, tolerance
):
    """Training, its evaluations, and fine-tuning with its scores; nothing of model/fast chooses for the reference."""
    losses, (texts, recipe) = {}, (tiny_texts()[:16], write_recipe(tmp_path, steps=4, precision=precision))
    rows = [{"text": text[:80], "label": number % 2} for number, text in enumerate(texts)]
    for compute in ("auto", "reference"):
        out, loop = tmp_path / compute, {"compute": compute, "precision": precision, "log_every": 1}
        if compute == "reference" and "fast" in acceleration.use_kernels.__module__:  # not in a copy without model/fast
            monkeypatch.setattr("bertworks.model.fast.backend.Backend.make_plan", None)
        main(line(recipe, tiny_store.path, out, "--loop.compute", compute))
        tuned = bertworks.finetune(out, tmp_path / f"{compute}-task", train=rows, dev=rows, epochs=1,
                                   max_seq_length=32, loop=loop)  # fmt: skip
        losses[compute] = [record["mlm_loss"] for record in read_log(out)] + [tuned.metrics["loss"]]
    first = f"computation: reference (model/bert.py as it is written); matrix products in {precision}, device cpu"
    said = capsys.readouterr().err
    assert first in said and "; budget: 4 steps; processes: 1\n" in said
    assert losses["reference"] == pytest.approx(losses["auto"], rel=tolerance)


def test_batches_of_one_shape_have_the_losses_of_packed_ones(tiny_store, tmp_path, capsys):
    """The first line of a run says so. There is no GPU here: for a graph one more line says that there is none."""
    losses, recipe = {}, write_recipe(tmp_path, steps=4, precision="float32")
    for compute in ("packed", "static", "graph"):
        main(line(recipe, tiny_store.path, tmp_path / compute, "--loop.compute", compute))
        losses[compute] = [record["mlm_loss"] for record in read_log(tmp_path / compute)]
        printed = capsys.readouterr().err
        assert ("; micro-batches of a phase have one shape; matrix" in printed) == (compute != "packed")
        assert ("no CUDA graph: it needs" in printed) == (compute == "graph")
    assert losses["static"] == pytest.approx(losses["packed"], rel=1e-5) and losses["graph"] == losses["static"]


def test_init_continues_from_a_model_folder(tiny_store, trained, tmp_path):
    config = load_recipe(trained / "recipe.toml", PretrainConfig)
    store = open_store(tiny_store.path)
    run = Run(tmp_path, identity_of(config, store), ALONE)
    begun, before = start_model(config, trained / "model", run, store), load_model(trained / "model")
    assert all(torch.equal(a, b) for a, b in zip(begun.parameters(), before.parameters(), strict=True))
    config = dataclasses.replace(config, output_bias="frequencies")
    counts = torch.from_numpy(store.unigram_counts()) + 1.0
    torch.testing.assert_close(
        start_model(config, None, run, store).heads["mlm"].bias.exp(), (counts / counts.sum()).float()
    )
    with pytest.raises(InputError, match="output_bias = 'frequencies' with a model to start from"):
        start_model(config, trained / "model", run, store)
    protected = dataclasses.replace(config, optim=dataclasses.replace(config.optim, protected_updates=9))
    changed = of_shape(protected, trained)
    assert (changed.output_bias, changed.optim.protected_updates) == ("zero", 0)
    recipe = write_recipe(tmp_path, steps=2)
    main(line(recipe, tiny_store.path, tmp_path / "run", "--init", str(trained)))  # a run folder means its model
    assert (tmp_path / "run" / "results.json").exists()
    hashes = {identity_of(config, store, path).hash for path in (None, trained, trained / "model", tmp_path / "run")}
    assert len(hashes) == 3


def refused(capsys, argv):
    """The one message of a line that cannot run."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in argv])
    said = capsys.readouterr().err
    assert end.value.code == 1 and said.startswith("bertworks: ") and "Traceback" not in said
    return said


def test_a_model_of_another_shape_is_refused(tiny_store, tmp_path, capsys):
    config = load_recipe(write_recipe(tmp_path), PretrainConfig)
    other = dataclasses.replace(config.model, hidden_size=24)
    save_folder(tmp_path / "other", build_model(other, seed=1), Tokenizer.load(tiny_store.path / "tokenizer"))
    argv = line(tmp_path / "recipe.toml", tiny_store.path, tmp_path / "run", "--init", tmp_path / "other")
    said = refused(capsys, [*argv, "--model.hidden-size", config.model.hidden_size])
    assert f"another shape (hidden_size: 24 there, {config.model.hidden_size} here); leave these out" in said
    few = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=50))
    with pytest.raises(InputError, match=r"^other has a vocabulary of 50 tokens.* 100; build .* --tokenizer other$"):
        check_vocabulary(open_training(few, tiny_store.path, finished=True), Path("other"))
    assert "no such folder" in refused(capsys, [*argv[:-1], tmp_path / "none"])


def test_a_run_takes_the_shape_of_the_model_that_it_starts_from(tiny_store, tmp_path):
    """A recipe's width, dropout and start are those of fresh models; its card names the license it began with."""
    recipe = load_recipe(write_recipe(tmp_path, steps=2), PretrainConfig)
    shape = dataclasses.replace(recipe.model, hidden_size=24, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)
    model = build_model(shape, recipe.heads, seed=1)
    facts = {"license": "mit", "base_model": "lab/encoder"}
    save_folder(tmp_path / "other", model, Tokenizer.load(tiny_store.path / "tokenizer"), facts)
    main([str(word) for word in line(tmp_path / "recipe.toml", tiny_store.path, tmp_path / "run", "--init",
                                     tmp_path / "other")])  # fmt: skip
    bertworks.pretrain(tmp_path / "recipe.toml", tiny_store.path, tmp_path / "same", init=tmp_path / "other")
    for run in ("run", "same"):
        found = load_recipe(tmp_path / run / "recipe.toml", PretrainConfig).model
        assert (found.hidden_size, found.hidden_dropout_prob) == (24, 0.3)
        assert json.loads((tmp_path / run / "results.json").read_text())["continued"] is True
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "license: mit" in card and "base_model: lab/encoder" in card


def test_a_model_reads_as_many_tokens_as_the_longest_phase_or_the_model_before(tiny_store, tmp_path):
    """The other positions of a fresh model have random embeddings."""
    config = load_recipe(write_recipe(tmp_path, steps=1), PretrainConfig)
    config = dataclasses.replace(config, phases=(dataclasses.replace(config.phases[0], budget_fraction=1.0),))
    assert (config.phases[0].length, config.model.max_length) == (24, 40)
    pretrain(config, tiny_store.path, tmp_path / "fresh", quiet=True)
    assert bertworks.Predictor(tmp_path / "fresh").max_length == 24
    save_folder(tmp_path / "long", load_model(tmp_path / "fresh"), Tokenizer.load(tiny_store.path / "tokenizer"))
    pretrain(config, tiny_store.path, tmp_path / "continued", init=tmp_path / "long", quiet=True)
    assert bertworks.Predictor(tmp_path / "continued").max_length == 40


def test_batches_that_need_more_memory_than_there_is_are_refused_before_a_model_is_built(
    tiny_store, tmp_path, monkeypatch
):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=1000))
    monkeypatch.setattr("bertworks.pretraining.job.start_model", None)
    with pytest.raises(InputError, match="their hidden states alone need"):
        pretrain(load_recipe(write_recipe(tmp_path), PretrainConfig), tiny_store.path, tmp_path / "run", quiet=True)


def test_a_padded_model_is_continued(tiny_store, tmp_path, capsys):
    """Others pad the embedding table to a multiple of 8; a fresh model has no reason to."""
    config, rows = load_recipe(write_recipe(tmp_path, steps=2), PretrainConfig), tiny_store.vocab_size // 8 * 8 + 8
    model = build_model(dataclasses.replace(config.model, vocab_size=rows), config.heads, seed=1)
    save_folder(tmp_path / "padded", model, Tokenizer.load(tiny_store.path / "tokenizer"))
    argv = line(tmp_path / "recipe.toml", tiny_store.path, tmp_path / "run", "--model.vocab-size", rows)
    assert f"give model.vocab_size = {tiny_store.vocab_size}" in refused(capsys, argv)
    main([str(word) for word in [*argv, "--init", tmp_path / "padded"]])
    assert load_model(tmp_path / "run" / "model").config.vocab_size == rows


def test_another_padding_than_the_tokenizers_is_refused(tmp_path, capsys):
    """Byte-level BPE pads with 1."""
    texts = ["a few words, and some more of them.\nand a second sentence of words", "another text of words"] * 20
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    tokenizer = Tokenizer.train(texts, TokenizerConfig("bpe", 270))
    options = BuildConfig(InputOptions(documents="blank-line"), workers=1)
    build_store([tmp_path / "text.txt"], tokenizer, tmp_path / "store", options, progress=False)
    argv = line(write_recipe(tmp_path, steps=1), tmp_path / "store", tmp_path / "run", "--objective", "mlm")
    argv += ["--model.vocab-size", str(tokenizer.vocab_size)]
    assert "model.pad_token_id is 0, the corpus's tokenizer pads with 1" in refused(capsys, argv)
    main([*argv, "--model.pad-token-id", "1"])
    assert json.loads((tmp_path / "run" / "model" / "config.json").read_text())["pad_token_id"] == 1


def test_the_estimate_follows_the_budget(tiny_store, tmp_path):
    config = load_recipe(write_recipe(tmp_path), PretrainConfig)
    for budget in ({"steps": 0, "tokens": 10**6}, {"steps": 0, "hours": 2.0}):
        found = estimate(
            dataclasses.replace(config, loop=dataclasses.replace(config.loop, **budget)), tiny_store.path, 2
        )
        assert found["tokens"] == pytest.approx(found["hours"] * 3600 * found["tokens_per_second"])
        assert found["tokens"] == pytest.approx(10**6) if "tokens" in budget else found["hours"] == 2


@pytest.mark.parametrize("path", sorted((RECIPES / "pretrain").glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_can_be_estimated(path, tmp_path, monkeypatch):
    """Its phases as short runs of their own; how fast these are is made up: a second, and a millisecond a token."""
    seen = []

    def run(config, corpus, out, init, quiet):
        [phase] = config.phases
        seen.append(phase.length)
        tokens = phase.length * phase.batch_size
        held = phase.length * min(phase.batch_size, phase.micro_batch_size or phase.batch_size)
        record = {"kind": "train", "step": 8, "tokens": 8 * tokens, "memory": 10**9 + 1000 * held}
        record["tokens_per_second"] = tokens / (1 + tokens / 1000)
        assert tokens <= 2 * estimating.CPU_TOKENS
        (out / "log.jsonl").write_text(json.dumps(record) + "\n")
        return {}

    monkeypatch.setattr(estimating, "pretrain", run)
    config = load_recipe(path, PretrainConfig)
    found = estimate(config, tmp_path)
    assert list(dict.fromkeys(seen)) == list(dict.fromkeys(phase.length for phase in config.phases))
    loop, hours, tokens = config.loop, 0.0, 0.0
    if loop.hours:
        return
    for phase in config.phases:
        each = phase.length * phase.batch_size
        fraction = phase.budget_fraction * (loop.steps or loop.tokens / each)
        hours += fraction * (1 + each / 1000) / 3600
        tokens += fraction * each
    assert (found["hours"], found["tokens"]) == (pytest.approx(hours), pytest.approx(tokens))
    held = max(phase.length * (phase.micro_batch_size or phase.batch_size) for phase in config.phases)
    assert found["memory"] == pytest.approx(10**9 + 1000 * held)


def test_weights_of_another_vocabulary_of_the_same_size_are_refused(tiny_store, tmp_path):
    recipe, other = write_recipe(tmp_path), tmp_path / "other"
    main([*line(recipe, tiny_store.path, tmp_path / "run"), "--loop.steps", "1"])
    shutil.copytree(tmp_path / "run" / "model", other)
    words = [*json.loads((other / "tokenizer.json").read_text())["model"]["vocab"]]
    for name in ("tokenizer.json", "vocab.txt"):
        if (other / name).exists():
            text = (other / name).read_text().replace(words[-1], "zzz").replace(words[-2], words[-1])
            (other / name).write_text(text)
    config = load_recipe(recipe, PretrainConfig)
    with pytest.raises(InputError, match="the same ids would mean other subwords"):
        pretrain(config, tiny_store.path, tmp_path / "second", init=other)


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("warmup = 0.1", "warmpu = 0.1", "unknown key optim.warmpu; did you mean optim.warmup?"),
        ("warmup = 0.1", "betas = [0.9]", "optim.betas = [0.9]; expected a list of 2"),
        ("warmup = 0.1", "betas = [0.9, 1.0]", "optim: betas = [0.9, 1.0]; expected numbers from 0 to below 1"),
        ("fraction = 0.6", "fraction = 0.5", "the phases' budget_fraction adds up to 0.9"),
        ("length = 40", "length = 41", "phase of length 41; expected 5 to 40, the longest"),
        ("eval_batches = 2", "snapshots = [5, 99]", "snapshots = [5, 99]; expected steps of the run, from 1 to 40"),
        ("batch_size = 36", "batch_size = 100000000000", "batch_size = 100000000000; expected at most 1,048,576"),
        ("eval_batches = 2", 'objective = "ltr"', "model.direction = 'both'; expected 'left'"),
        ("dupe_factor = 2", 'input_format = "full-sentences"', "which has no second segment; expected 'mlm'"),
        ("dupe_factor = 2", "sentence_order = true", "instances.sentence_order with objective = 'mlm+nsp'"),
    ],
)
def test_a_recipe_with_a_mistake_is_refused(tiny_store, tmp_path, capsys, old, new, said):
    recipe = write_recipe(tmp_path)
    text = recipe.read_text()
    assert old in text
    recipe.write_text(text.replace(old, new))
    assert said in refused(capsys, line(recipe, tiny_store.path, tmp_path / "run"))


def test_a_finished_run_with_other_settings_is_refused(tiny_store, trained, tmp_path, capsys):
    recipe, store = write_recipe(tmp_path, steps=6), tiny_store.path
    for more in (["--optim.lr", "4e-3"], ["--optim.lr", "5e-3", "--loop.steps", "7"]):
        assert "is a finished run with other settings" in refused(capsys, line(recipe, store, trained, *more))
    with_init = ["--optim.lr", "5e-3", "--init", str(trained / "model")]  # other weights to begin with
    assert "is a finished run with other settings" in refused(capsys, line(recipe, store, trained, *with_init))
    main(line(recipe, store, trained, "--optim.lr", "5e-3", "--loop.log-every", "7"))
    assert "is finished; see" in capsys.readouterr().err


def test_a_finished_run_is_left_alone_without_reading_the_corpus(tiny_store, trained, tmp_path, monkeypatch):
    """A run that is not finished has every byte checked."""
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    config, read = load_recipe(trained / "recipe.toml", PretrainConfig), []
    monkeypatch.setattr("bertworks.data.opening.checksum", lambda path: read.append(path) or "0")
    assert pretrain(config, tiny_store.path, trained, quiet=True) == json.loads((trained / "results.json").read_text())
    assert not read and before == {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    with pytest.raises(InputError, match="the file was altered"):
        pretrain(config, tiny_store.path, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_held_out_text_is_masked_the_papers_way(tiny_store):
    """Whatever the masks of training: losses of runs with different ones can be compared."""
    store = open_store(tiny_store.path)
    vocabulary = Vocabulary.of(Tokenizer.load(store.tokenizer_folder))
    plain = PretrainConfig()
    other = dataclasses.replace(plain, masking=MaskingConfig(masked_lm_prob=0.5, mask_share=0.0, random_share=1.0))
    held_out = [next(config.data(store, "validation", vocabulary, 40).batches(8, 1)) for config in (plain, other)]
    assert all(torch.equal(held_out[0][name], held_out[1][name]) for name in held_out[0])
    trained = [config.data(store, "train", vocabulary, 40).take(StreamPosition(), 8)[0] for config in (plain, other)]
    assert (trained[1]["masked_labels"] >= 0).sum() > 2 * (trained[0]["masked_labels"] >= 0).sum()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("objective", "direction", "layers"),
    [("mlm", "both", "attention"), ("ltr", "left", "attention"), ("rtl", "right", "lstm"), ("mlm", "both", "gru")],
)
def test_other_objectives_learn_and_keep_snapshots(tiny_store, tmp_path, objective, direction, layers):
    config = load_recipe(write_recipe(tmp_path, steps=30, dropout=0.1), PretrainConfig)
    config = dataclasses.replace(
        config,
        objective=objective,
        model=dataclasses.replace(config.model, direction=direction, layer_type=layers),
        optim=dataclasses.replace(config.optim, lr=1e-2),
        snapshots=(10, 25),
    )
    results = pretrain(config, tiny_store.path, tmp_path / "run", quiet=True)
    term = {"mlm": "mlm"}.get(objective, objective)
    assert {f"{term}_loss", f"{term}_accuracy", "unigram_entropy"} == results["metrics"].keys()
    train = [r for r in read_log(tmp_path / "run") if r["kind"] == "train"]
    assert train[-1][f"{term}_loss"] < train[0][f"{term}_loss"] - 0.3
    model = load_model(tmp_path / "run" / "model")
    assert list(model.heads) == ["mlm"] and model.encoder.pooler is None and model.config == config.model
    moved = [
        load_model(tmp_path / "run" / name).encoder.embeddings.word.weight for name in ("snapshots/step-25", "model")
    ]
    assert not torch.equal(*moved)


def test_albert_from_raw_text_by_its_own_means(tmp_path):
    """A Unigram vocabulary, a store of its pieces, sentence order, shared layers, a narrow table, LAMB: by commands."""
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(tiny_texts(200)))
    blank = ["--input.documents", "blank-line"]
    main(["tokenizer", "train", str(text), "--out", str(tmp_path / "tok"), "--algorithm", "unigram",
          "--vocab-size", "120", "--uncased", *blank])  # fmt: skip
    main(["corpus", "build", str(text), "--tokenizer", str(tmp_path / "tok"), "--out", str(tmp_path / "store"), *blank])
    size = Tokenizer.load(tmp_path / "tok").vocab_size
    main(line(write_recipe(tmp_path, steps=20), tmp_path / "store", tmp_path / "run",
              "--objective", "mlm+sop", "--masking.ngrams", "3", "--masking.whole-word",
              "--model.family", "albert", "--model.vocab-size", str(size), "--model.embedding-size", "8",
              "--model.shared-layers", "all", "--optim.rule", "albert_lamb", "--optim.lr", "1e-2"))  # fmt: skip
    records = [r for r in read_log(tmp_path / "run") if r["kind"] == "train"]
    assert records[-1]["mlm_loss"] < records[0]["mlm_loss"]
    metrics = json.loads((tmp_path / "run" / "results.json").read_text())["metrics"]
    assert "sop_loss" in metrics and "nsp_loss" not in metrics and 0.2 < metrics["sop_accuracy"] < 0.8
    model = load_model(tmp_path / "run" / "model")
    assert len(model.encoder.layers) == 1 < model.config.num_hidden_layers
    assert model.encoder.embeddings.word.weight.shape == (size, 8)


def test_held_out_text_is_as_long_as_what_is_trained(tiny_store, tmp_path, monkeypatch):
    """In each phase its own length; at the end that of the last phase, even if the run was too short to reach it."""
    monkeypatch.setattr("bertworks.apps.doctor.listing.print_warnings", lambda report: None)
    lengths = []
    original = PretrainingData.batches

    def batches(self, *arguments):
        lengths.append(self.length)
        return original(self, *arguments)

    monkeypatch.setattr(PretrainingData, "batches", batches)
    recipe = write_recipe(tmp_path, steps=10)  # of 24 tokens for six tenths, then of 40
    main(line(recipe, tiny_store.path, tmp_path / "run", "--loop.eval-every", "3"))
    assert lengths == [24, 24, 40, 40]  # after 3, 6 and 9 steps, at the end, which is what the results have
    main(line(recipe, tiny_store.path, tmp_path / "short", "--loop.steps", "1", "--loop.eval-every", "0"))
    assert lengths[4:] == [40]
    main(line(recipe, tiny_store.path, tmp_path / "best", "--loop.eval-every", "3", "--loop.keep-best", "mlm_accuracy"))
    # scores of different lengths could not be compared; the kept weights again, unless they are the last ones
    scores = [record["mlm_accuracy"] for record in read_log(tmp_path / "best") if "mlm_accuracy" in record][:4]
    assert lengths[5:] == [40] * (4 if scores[3] > max(scores[:3]) else 5)


def test_the_best_weights_need_held_out_documents(tiny_store, tmp_path, monkeypatch, capsys):
    """A store built with `--validation-share 0` has none; the run is refused before its folder is made."""
    shards = Store.shards
    monkeypatch.setattr(Store, "shards", lambda store, split: shards(store, split) if split == "train" else [])
    argv = line(write_recipe(tmp_path, steps=2), tiny_store.path, tmp_path / "run", "--loop.keep-best", "mlm_loss")
    assert "loop.keep_best = 'mlm_loss' needs held-out documents" in refused(capsys, argv)
    assert not (tmp_path / "run").exists()
