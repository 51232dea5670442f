"""Fine-tuning by transformers as its examples do it: the peer of `benchmarks/finetuning_scores.py`, which starts it.

run_glue, run_ner and run_qa in short: AutoModelFor..., fast tokenizer, dynamic padding, and the Trainer with batches of
similar length, bfloat16 and fused AdamW. Scores are taken in float32, on batches sorted by length. Two things differ
from the examples, so that both sides see the same input: a CoNLL row is a window of several sentences of a document,
and a SQuAD window begins a fixed number of tokens after the one before it. Needs `pip install -e '.[bench]'`.
"""

import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import transformers

from finetuning_settings import Settings
from peer_conll import conll_job
from peer_glue import glue_job
from peer_job import Job
from peer_squad import squad_job

JOBS: dict[str, Callable[[str, Settings, Any], Job]] = {"glue": glue_job, "conll": conll_job, "squad": squad_job}


def start(task: str, seed: int, settings: Settings) -> tuple[Job, Any, Any]:
    """The job, the tokenizer and the model before training, whose head `seed` has drawn."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings.model, use_fast=True)
    job = JOBS[settings.kind](task, settings, tokenizer)
    transformers.set_seed(seed)
    model = job.head.from_pretrained(
        settings.model,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
        classifier_dropout=None,
        **job.arguments,
    )
    return job, tokenizer, model


def save_start(task: str, seed: int, settings: Settings, folder: Path) -> Path:
    """That model as a folder, so that the other side can begin with the same head."""
    _, tokenizer, model = start(task, seed, settings)
    if settings.kind != "squad" and model.config.id2label[0] == "LABEL_0":
        raise SystemExit(f"{task}: its head has no names of labels that another side could find its rows by")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def peer(task: str, seed: int, settings: Settings, grouped: bool = True) -> dict[str, Any]:
    """Fine-tune and evaluate: metrics, seconds of training, rows, steps, versions.

    grouped: whether rows of similar length come together, which saves padding.
    """
    job, tokenizer, model = start(task, seed, settings)
    steps = int(len(job.features) * settings.epochs / settings.batch_size)
    with tempfile.TemporaryDirectory() as out:
        arguments = transformers.TrainingArguments(
            output_dir=out,
            max_steps=steps,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.lr,
            adam_beta1=settings.betas[0],
            adam_beta2=settings.betas[1],
            adam_epsilon=settings.eps,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.clip,
            lr_scheduler_type="linear",
            warmup_steps=int(settings.warmup * steps),
            optim="adamw_torch_fused",
            bf16=settings.precision == "bfloat16 autocast",
            train_sampling_strategy="group_by_length" if grouped and not settings.padding else "random",
            seed=seed,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, arguments, job.collator, job.features, processing_class=tokenizer)
        trainer.remove_callback(transformers.PrinterCallback)
        begun, used = time.perf_counter(), time.process_time()
        trainer.train()
        seconds, used = time.perf_counter() - begun, time.process_time() - used
        model = trainer.accelerator.unwrap_model(trainer.model_wrapped, keep_fp32_wrapper=False)
    begun = time.perf_counter()
    metrics = job.evaluate(model.eval())

    return {
        "metrics": metrics,
        "seconds": seconds,
        "cpu_seconds": used,  # of training: less than `seconds` if others used the cores too
        "seconds_of_evaluation": time.perf_counter() - begun,
        "rows": job.rows,
        "steps": steps,
        "tokens": round(sum(len(feature["input_ids"]) for feature in job.features) * settings.epochs),
        "versions": {name: metadata.version(name) for name in ("transformers", "accelerate", "tokenizers")},
    }
