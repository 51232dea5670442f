"""The tables of docs/results.md and below docs/results/ that show single runs: pre-training, fine-tuning, relatives."""

import statistics
from typing import Any

from findings import CONTINUED, claim_text, judged
from scipy.stats import ttest_ind
from sources import Lines, percent, result, seeds_of, spread, study, table

from bertworks.experiments.statistics import difference, difference_text


def what_you_get() -> Lines:
    """Scores with few and with all labels: `mini`, models without an encoder, and published encoders."""
    columns = ("NER 1,000", "NER 14,041", "SST-2 200", "SST-2 1,000", "SST-2 10,000", "SST-2")
    found, run = study("mini"), result("encoders/mini/results")
    few = measured(result("encoders/published/few-labels")) | measured(result("encoders/published/results"))
    scores, words = few | measured(found), next(row for row in found["rows"] if row["name"] == "word2vec + BiLSTM")
    million = result("encoders/mini/held-out")["parameters"] / 1e6
    tokens, seconds = (run[key] + run["before"][key] for key in ("tokens", "seconds"))  # it has two parts
    about = {
        "mini": (
            "`mini`, bundled: 4 layers",
            f"{million:.1f}",
            f"{tokens / 1e6:.0f} M tokens, {seconds / 60:.0f} minutes on two CPU cores",
        ),
        "random weights": ("the same without pre-training", f"{million:.1f}", "-"),
        "word2vec + BiLSTM": (
            "word2vec + BiLSTM",
            f"{words['parameters'] / 1e6:.1f}",
            f"{words['tokens'] / 1e6:.0f} M tokens",
        ),
        "linear model": ("linear model", "-", "-"),
    }
    rows = [(*cells, *(score(scores.get((row, column))) for column in columns)) for row, cells in about.items()]
    tasks = result("minilm/suite/results")["tasks"]
    minilm = [
        f"{percent(tasks[task]['metrics'][metric])} (1)" for task, metric in (("conll2003", "f1"), ("sst2", "accuracy"))
    ]
    ours = result("benchmarks/finetuning_scores")["tasks"]["sst2"]["metrics"]["accuracy"]["ours"]
    whole = {"NER 14,041": minilm[0], "SST-2": minilm[1], "SST-2 10,000": f"{percent(ours['mean'])} (3)"}
    tuned = [whole.get(column) or score(few.get(("all-MiniLM-L6-v2", column))) for column in columns]
    rows.append(("all-MiniLM-L6-v2, published: 6 layers", "23", "not ours", *tuned))
    vectors = [score(few.get(("logistic regression on vectors", column))) for column in columns]
    rows.append(("logistic regression on its vectors", "23", "not ours", *vectors))
    base = (measured(study("features"))["fine-tuning", "NER dev"], measured(study("tasks"))["BERT", "SST-2"])
    paper = [f"{entry['paper']:.1f}" for entry in base]
    rows.append(
        ("BERT-BASE, the paper's figures", "110", "16 TPU chips, 4 days", "-", paper[0], "-", "-", "-", paper[1])
    )
    header = ("NER, 1,000", "NER, 14,041", "SST-2, 200", "SST-2, 1,000", "SST-2, 10,000", "SST-2, 67,349")
    return table(("", "parameters (M)", "pre-training", *header), rows, words=3)


def measured(found: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """The entries of a study by row and column."""
    return {(entry["row"], entry["column"]): entry for entry in found["measured"]}


def score(entry: dict[str, Any] | None) -> str:
    """The mean, and the number of seeds."""
    return f"{percent(entry['mean'])} ({entry['n']})" if entry and entry["n"] else "-"


def fine_tuned() -> Lines:
    asked = [
        ("SST-2, accuracy", "2e-4, 1", "sst2", "accuracy"),
        ("MRPC, accuracy", "5e-5, 3", "mrpc5", "accuracy"),
        ("CoNLL-2003, F1", "2e-4, 3", "ner", "f1"),
        ("CoNLL-2003, F1 on eng.testb", "2e-4, 3", "ner", "f1_test"),
    ]
    rows = []
    for task, settings, run, metric in asked:
        runs = [f"finetune-cpu-rotary/{run}_{side}" for side in ("pretrained", "random")]
        shown = [spread(one["metrics"][metric], one["std"][metric]) for one in (result(f"{r}/results") for r in runs)]
        rows.append((task, settings, *shown, effect(runs[1], runs[0], metric)))
    header = ("task", "learning rate, epochs", "pre-trained", "random weights", "effect (95 %)")
    return table(header, rows, words=2)


def effect(base: str, other: str, metric: str) -> str:
    """The difference of two runs of the same seeds, with its interval."""
    return difference_text(difference(seeds_of(base, metric), seeds_of(other, metric)))


def parity() -> Lines:
    asked = [
        ("MRPC", "mrpc", "f1"),
        ("MRPC, same head, its batches unsorted", "mrpc", "f1"),
        ("RTE", "rte", "accuracy"),
        ("CoLA", "cola", "matthews"),
        ("STS-B", "stsb", "spearman"),
        ("STS-B", "stsb", "pearson"),
        ("STS-B, same head, its batches unsorted", "stsb", "spearman"),
        ("STS-B, same head, its batches unsorted", "stsb", "pearson"),
        ("SST-2, first 10,000 rows, 2 epochs", "sst2", "accuracy"),
        ("QNLI, 2 epochs", "qnli", "accuracy"),
        ("CoNLL-2003", "conll2003", "f1"),
        ("CoNLL-2003", "conll2003", "test_f1"),
        ("CoNLL-2003, same head", "conll2003", "f1"),
        ("CoNLL-2003, same head", "conll2003", "test_f1"),
        ("SQuAD 1.1, 13 % of its questions, 2 epochs", "squad1", "f1"),
        ("SQuAD 2.0, `small-train-v2.0.json`, 2 epochs", "squad2", "best_f1"),
        ("SQuAD 2.0, `small-train-v2.0.json`, 2 epochs", "squad2", "f1"),
    ]
    names = {"test_f1": "F1 on eng.testb", "f1": "F1", "best_f1": "F1 at its best threshold"}
    rows = []
    for task, key, metric in asked:
        found = result("benchmarks/finetuning_scores")["tasks"][key]
        side = "ours-same-head" if "head" in task else "ours"
        other = "transformers-any-order" if "unsorted" in task else "transformers"
        seeds = [seed for seed in found["seeds"][side] if seed in found["seeds"][other]]
        sides = []
        for one in (side, other):
            values = dict(zip(found["seeds"][one], found["metrics"][metric][one]["every_seed"], strict=True))
            sides.append([values[seed] for seed in seeds])
        means = [statistics.fmean(values) for values in sides]
        deviations = [statistics.stdev(values) if len(seeds) > 1 else None for values in sides]
        gap = percent(means[0] - means[1], "+")
        rows.append((task, names.get(metric, metric), *map(spread, means, deviations), gap, str(len(seeds))))
    return table(("task", "metric", "ours", "transformers", "difference", "seeds"), rows, words=2)


def other_tasks() -> Lines:
    """Kinds of tasks that the paper's tables lack, or whose data are not here, with all-MiniLM-L6-v2."""
    asked = [
        ("CODAH, four choices", "codah", "accuracy"),
        ("types of names in a sentence, several labels", "entity-types", "micro_f1"),
        ("which of 20 books a passage is from, first 128 tokens", "books-128", "accuracy"),
        ("the same, first 512 tokens", "books-512", "accuracy"),
    ]
    rows = []
    for task, run, metric in asked:
        found = result(f"minilm/{run}/results")
        sizes = " / ".join(f"{found['examples'][part]:,}" for part in ("train", "dev"))
        shown = spread(found["metrics"][metric], found["std"][metric] if "std" in found else None)
        seeds = str(len(found.get("seeds", [1])))
        rows.append((task, metric.replace("_", " "), shown, seeds, percent(found["majority"]), sizes))
    return table(("task", "metric", "score", "seeds", "majority baseline", "train / dev examples"), rows, words=2)


def paper_tasks() -> Lines:
    """Every task of the paper that has data here, with all-MiniLM-L6-v2: one seed, one command."""
    suite, rows, shown = result("minilm/suite/results"), [], set[str]()
    for row in suite["rows"]:
        if row["mean"] is None:  # MNLI-mm: its file is not here
            continue
        found, first = suite["tasks"][row["task"]], row["task"] not in shown
        shown.add(row["task"])
        guess = percent(found["majority"]) if first and found["majority"] else "-"
        paper = "-" if row["paper"] is None else f"{row['paper']:.1f} {row['where']}"
        sizes = " / ".join(f"{found['examples'][part]:,}" for part in ("train", "dev"))
        name = f"{row['name']}, {row['metric'].replace('_', ' ')}"
        rows.append((name, percent(row["mean"]), guess, paper, sizes if first else ""))
    header = ("task, metric", "here", "majority baseline", "BERT-BASE (not comparable)", "train / dev examples")
    return table(header, rows)


def mrpc_sweep() -> Lines:
    """F1 on MRPC's development rows for every setting that the paper searched, with all-MiniLM-L6-v2."""
    settings = result("minilm/mrpc-sweep/results")["settings"]
    epochs = sorted({one["epochs"] for one in settings})
    batches = sorted({one["batch_size"] for one in settings})
    scores = {(one["lr"], one["batch_size"], one["epochs"]): percent(one["metrics"]["f1"]) for one in settings}
    header = ("learning rate", *(f"batches of {batch}, {count:g} epochs" for batch in batches for count in epochs))
    rows = [
        (f"{lr:.0e}".replace("e-0", "e-"), *(scores[lr, batch, count] for batch in batches for count in epochs))
        for lr in sorted({one["lr"] for one in settings}, reverse=True)
    ]
    return table(header, rows)


def continued() -> Lines:
    """Continued pre-training on the texts of a task, beside none and beside as much on the encoder's own corpus."""
    rows, lines = [], list[str]()
    for f in (f for f in judged() if f.one.source in CONTINUED):
        lines += [claim_text(f, f"{f.one.here}: {f.one.row} against {f.one.against}", f"{f.ours.n} pre-trainings")]
    for task, file in (("SST-2", "continued"), ("NSMC", "continued-nsmc")):
        for count, each in result(f"benchmarks/{file}")["values"].items():
            shown = []
            for name in ("as it is", "its own corpus", "texts of the task"):
                values = [*each[name].values()]
                shown.append(spread(statistics.fmean(values), statistics.stdev(values)))
            gains = [
                difference_text(difference(each[other], each["texts of the task"]))
                for other in ("as it is", "its own corpus")
            ]
            rows.append((f"{task}, {int(count):,} examples", *shown, *gains))
    header = ("accuracy", "as it is", "more of its own corpus", "texts of the task", "gain", "against its own corpus")
    return [*lines, "", *table(header, rows)]


def embedders() -> Lines:
    """Spearman of embedders, ours beside sentence-transformers."""
    rows = []
    for task, file in (("STS-B", "embedding-scores-stsb"), ("KorSTS", "embedding-scores-korsts")):
        found = result(f"benchmarks/{file}")
        sides = [[run["spearman"] for run in found["sides"][side]] for side in ("ours", "sentence-transformers")]
        shown = [spread(statistics.fmean(side), statistics.stdev(side)) for side in sides]
        low, high = ttest_ind(*sides, equal_var=False).confidence_interval()  # a seed draws other batches on each side
        gap = statistics.fmean(sides[0]) - statistics.fmean(sides[1])
        gap_text = f"{percent(gap, '+')} ({percent(low, '+')} to {percent(high, '+')})"
        rows.append((task, percent(found["before"]), *shown, gap_text, str(len(sides[0]))))
    header = ("Spearman on dev", "before", "ours", "sentence-transformers", "difference (95 %)", "seeds per system")
    return table(header, rows)


def korean_sentences() -> Lines:
    rows = []
    for name, found in result("benchmarks/korean-sentences")["splitters"].items():
        shown = [percent(found[kind][key]) for kind in ("written", "reviews") for key in ("precision", "recall")]
        rows.append((name, *shown, percent(found["all"]["f1"]), f"{found['passages_a_second']:,}"))
    kinds = [f"{kind}: {key} (%)" for kind in ("written", "reviews") for key in ("precision", "recall")]
    return table(("splitter", *kinds, "all: F1 (%)", "passages/s"), rows)


def relatives() -> Lines:
    labels = {
        "ALBERT": "ALBERT (all shared, E = 64)",
        "DistilBERT": "DistilBERT, taught by that BERT",
        "two layers without a teacher": "the same two layers alone",
        "random weights": "random weights, BERT's shape",
    }
    rows, sides = [], result("benchmarks/relatives")["sides"]
    for name, side in sides.items():
        loss = side.get("metrics", {})
        scores = [side["scores"][task] for task in ("mrpc", "sst2", "conll2003")]
        counts = (
            side if "tokens" in side else {"parameters": sides["BERT"]["parameters"], "tokens": 0}
        )  # random weights
        size = [f"{counts[key] / 1e6:.2f}" for key in ("parameters", "tokens")]
        held = f"{loss['mlm_loss']:.2f}" if "mlm_loss" in loss else "-"
        every = f"{loss['ltr_loss']:.2f} (every token, from the left)" if "ltr_loss" in loss else held
        rows.append((labels.get(name, name), *size, every, *(spread(score["mean"], score["sd"]) for score in scores)))
    header = ("encoder", "parameters (M)", "tokens (M)", "held-out loss (nats)", "MRPC", "SST-2", "CoNLL-2003 F1")
    return table(header, rows)
