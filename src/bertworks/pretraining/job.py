"""Pre-training from folders: a store, a recipe, and perhaps a model to continue from, become a run folder (run.py).

The run folder holds recipe.toml (resolved), log.jsonl, state/ (resume), model/ (the result), snapshots/ (models of
earlier steps, if requested) and results.json. A rerun resumes; a finished run is left as it is.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..checkpoint.card import origin_in_card
from ..checkpoint.folder import find_model, is_padded, read_config, save_folder
from ..checkpoint.metadata import input_length
from ..checkpoint.start import initial_model
from ..checkpoint.weights import weights_checksum
from ..config import with_fields
from ..data.batches import Vocabulary
from ..data.opening import open_store
from ..data.prefetch import Prefetcher
from ..data.store import Store
from ..data.vocabulary import check_unknown, tokenizer_of
from ..files import InputError
from ..model.build import build_model
from ..model.heads import Model
from ..reporting.tables import counted
from ..tokenizer import Tokenizer
from ..training.compute import prepare_model
from ..training.distributed import World, is_first_of_node, joined_world
from ..training.graph import use_static_passes
from ..training.identity import RecordCallback, Run, RunIdentity
from ..training.loop import TrainingLoop
from ..training.machine import check_memory, prepared_process
from ..training.objectives import PRETRAINING
from ..training.run import is_finished, open_run, refuse_other_folder, resume_run, run_facts, train, write_results
from .recipe import PretrainConfig
from .run import PretrainingFeed, StoreTraining


def pretrain(
    config: PretrainConfig,
    corpus: Path,
    out: Path,
    init: Path | None = None,
    quiet: bool = False,
    on_record: RecordCallback | None = None,
) -> dict[str, Any] | None:
    """Train or resume, and write the run folder; returns its results, or None if stopped before the end.

    init: a model folder whose weights to continue from. quiet: print nothing. on_record: called
    with each record of the log; when it returns True, the run is saved and stops.
    Raises InputError if recipe, store and `init` do not fit together, or if `out` belongs to another run.
    """
    config.loop.check(config.metrics)
    refuse_other_folder(out)
    source = open_training(config, corpus, is_finished(out), init)
    check_vocabulary(source, init)
    origin = {} if init is None else origin_in_card(find_model(init))
    with prepared_process(), joined_world() as world:
        run = Run(out, identity_of(config, source.store, init), world, quiet, on_record)
        with open_run(run) as results:
            if results is not None:
                return results
            check_phases(config, world)
            loop = source.build_loop(run, start_model(config, init, run, source.store), PRETRAINING[config.objective])
            if not train_on_store(source, loop):
                return None
            return finish(source, loop, "pretrain", {} if init is None else {"continued": True}, origin)


def identity_of(config: PretrainConfig, store: Store, init: Path | None = None) -> RunIdentity:
    """What determines the outcome of a run: settings, store, weights to continue from."""
    initial = () if init is None else (weights_checksum(find_model(init)),)
    return RunIdentity(config, (store.fingerprint, *initial))


def of_shape(config: PretrainConfig, init: Path, fields: Mapping[str, Any] = {}) -> PretrainConfig:
    """The recipe for a model folder or run folder: with its shape and dropout, without settings for random weights.

    fields: other values, as in `with_fields`. Raises InputError if the folder is incomplete, or has too few positions
    for a phase.
    """
    shape = {f"model.{name}": value for name, value in vars(read_config(find_model(init))[0]).items()}
    return with_fields(config, {**shape, "output_bias": "zero", "optim.protected_updates": 0, **fields})


def open_training(config: PretrainConfig, corpus: Path, finished: bool, init: Path | None = None) -> StoreTraining:
    """Training on a store. Its models are saved with the store's tokenizer and with the number of tokens they can read:
    those of the longest phase, or of `init`.

    finished: the run is, so the store needs no check. The first process of a node checks it for all of them.
    init: a model folder whose weights to continue from.

    Raises InputError for a damaged store, or one without the held-out documents that `keep_best` needs.
    """
    store = open_store(corpus, verify=not finished and is_first_of_node())
    if (metric := config.loop.keep_best) and not store.shards("validation"):
        advice = "leave it out, or build the store with a validation_share above 0"
        raise InputError(f"loop.keep_best = {metric!r} needs held-out documents, and {corpus} has none; {advice}")
    tokenizer = tokenizer_of(store)
    check_unknown(store, tokenizer)

    longest = max(phase.length for phase in config.phases)  # later positions keep their random embeddings
    if init is not None:
        longest = max(longest, input_length(find_model(init), config.model.max_length))

    def save_model(folder: Path, model: Model, facts: Mapping[str, Any]) -> None:
        save_folder(folder, model, tokenizer, dict(facts), max_length=longest)

    return StoreTraining(config, store, Vocabulary.of(tokenizer), save_model, Prefetcher)


def check_phases(config: PretrainConfig, world: World) -> None:
    """Raises InputError if a forward pass of a phase needs more memory than there is."""
    tokens, shape = max(phase.tokens_of_pass(world.size) for phase in config.phases), config.model
    check_memory(tokens, shape.hidden_size, shape.num_hidden_layers, world.device)


def train_on_store(source: StoreTraining, loop: TrainingLoop) -> bool:
    """Continue from the saved state, if any, and train; False if the run was stopped before its end.

    First it prints what is about to run, for a person to check before hours are spent.
    """
    config, store, run, feed = source.config, source.store, loop.run, loop.trainer.feed
    shape, tokens = config.model, sum(shard.n_tokens for shard in store.shards("train"))
    parameters = sum(p.numel() for p in loop.trainer.model.parameters())
    retained = config.masking.unchanged_fraction if config.objective_spec.masked else 0.0
    assert isinstance(feed, PretrainingFeed)
    use_static_passes(loop.trainer)
    with contextlib.closing(feed.source):  # ends the processes that make batches
        resume_run(loop)
        run.say(
            f"model: {counted(shape.num_hidden_layers, 'layer')}, width {shape.hidden_size}, {parameters:,} "
            f"parameters; corpus: {tokens:,} tokens; budget: {config.loop.budget}; processes: {run.world.size}"
        )
        run.say(plateau(store.unigram_entropy(), retained))
        return train(loop)


def plateau(entropy: float, retained: float) -> str:
    """The losses, in nats, of a language model that does not use context (docs/plateau.md)."""
    copied = f"; {entropy * (1 - retained):.2f}, that it also copies the tokens that masking left unchanged"
    meaning = f"a loss of {entropy:.2f} nats (the unigram entropy of the corpus) means that the model has learned only "
    return f"{meaning}word frequencies{copied if 0 < retained < 1 else ''}. A useful model is well below"


def finish(
    source: StoreTraining, loop: TrainingLoop, kind: str, facts: Mapping[str, Any], origin: Mapping[str, str]
) -> dict[str, Any]:
    """Write the model folder, with results and `origin` in its card, and results.json, whose content is returned."""
    model, run, store = loop.trainer.model, loop.run, source.store
    assert isinstance(model, Model)
    metrics = loop.metrics | {"unigram_entropy": store.unigram_entropy()}
    results = {"kind": kind, "metrics": metrics, **run_facts(loop), "instances": loop.progress.instances}
    results |= {"corpus": store.fingerprint, **facts}
    if run.world.is_main:
        source.save_model(run.out / "model", model, {**results, **origin})
    return write_results(run.out, results, run.world)


def held_out_metrics(config: PretrainConfig, corpus: Path, model: Path) -> dict[str, float]:
    """The metrics of a model on the held-out set that a recipe makes of a store, at its last phase's length.

    Models of several recipes are compared on it. Raises InputError if the model lacks a head of the recipe's objective.
    """
    source = open_training(config, corpus, finished=True)
    loaded = initial_model(model, config.heads, labels=0, seed=config.loop.seed)
    if loaded.fresh:
        raise InputError(f"{model} has no {', '.join(loaded.fresh)}, which objective = {config.objective!r} reads; "
                         "evaluate it by another objective")  # fmt: skip
    with prepared_process(), joined_world() as world:
        return source.evaluate(loaded.model.to(world.device), PRETRAINING[config.objective], world)


def check_vocabulary(source: StoreTraining, init: Path | None) -> None:
    """Raises InputError if the recipe's model has another vocabulary, or another padding, than the store."""
    rows, tokens = source.config.model.vocab_size, source.store.vocab_size
    padded = init is not None and is_padded(rows, tokens)  # the table of that model stays as it is
    if rows != tokens and not padded:
        advice = f"give model.vocab_size = {tokens}, or build the corpus with the other tokenizer"
        if init is not None:  # a flag would give it another shape
            advice = f"build the corpus with its tokenizer: bertworks corpus build ... --tokenizer {init}"
        raise InputError(f"{init or 'the recipe'} has a vocabulary of {rows} tokens, the corpus of {tokens}; {advice}")
    if init is not None:
        check_same_tokenizer(find_model(init), source.store)
    model, pad = source.config.model, source.vocabulary.pad_id
    # config.json has to name the tokenizer's padding; models of others, apart from RoBERTa, may name another one
    if model.pad_token_id != pad and (init is None or model.family == "roberta"):
        fields, offset = f"model.pad_token_id = {pad}", pad + 1
        if model.family == "roberta":  # its positions begin behind the padding
            fields += f", model.position_offset = {offset}, model.max_position_embeddings = {model.max_length + offset}"
        found = f"the recipe's model.pad_token_id is {model.pad_token_id}, the corpus's tokenizer pads with {pad}"
        raise InputError(f"{found}; give {fields}")


def check_same_tokenizer(model: Path, store: Store) -> None:
    """Raises InputError if a model's tokenizer is not the store's: the same ids would mean other subwords."""
    try:
        tokenizer = Tokenizer.load(model)
    except InputError:  # a folder with weights alone
        return
    if tokenizer.fingerprint != store.manifest["tokenizer"]["fingerprint"]:
        raise InputError(
            f"the tokenizer of {model} is not the one that {store.folder} was built with: the same ids would mean "
            f"other subwords. Build the corpus with it: bertworks corpus build ... --tokenizer {model}"
        )


def start_model(config: PretrainConfig, init: Path | None, run: Run, store: Store) -> Model:
    """A model with random weights, or with those of a model folder to continue from, ready to be trained."""
    if init is None:
        model = build_model(config.model, config.heads, seed=config.loop.seed)
        if config.output_bias == "frequencies":
            counts = torch.from_numpy(store.unigram_counts()) + 1.0
            model.heads["mlm"].bias.data.copy_((counts / counts.sum()).log())  # type: ignore[operator, union-attr]
        return prepare_model(model, config.loop, run, PRETRAINING[config.objective])
    if config.output_bias != "zero":
        raise InputError(f"output_bias = {config.output_bias!r} with a model to start from; leave it out")
    shape = dataclasses.asdict(read_config(init)[0])
    if unlike := [f"{k}: {shape[k]!r} there, {v!r} here" for k, v in vars(config.model).items() if shape[k] != v]:
        raise InputError(f"{init} holds a model of another shape ({'; '.join(unlike)}); leave these out of the recipe")
    start = initial_model(init, config.heads, labels=0, seed=config.loop.seed)
    model = prepare_model(start.model, config.loop, run, PRETRAINING[config.objective])
    if start.fresh:
        run.say(f"missing in {init}, initialized randomly: {', '.join(start.fresh)}")
    if start.unused:
        run.say(f"in {init}, but not used: {', '.join(start.unused)}")
    return model
