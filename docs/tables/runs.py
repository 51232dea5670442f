"""The tables of docs/results.md that show single runs: pre-training, fine-tuning, the plateau, the relatives."""

import statistics

from scipy.stats import ttest_ind
from sources import RESULTS, Lines, percent, result, seeds_of, spread, table

from bertworks.experiments.statistics import difference, difference_text


def held_out() -> Lines:
    rotary, learned = (result(f"{run}/results")["metrics"] for run in ("pretrain-cpu-rotary", "pretrain-cpu"))
    guess = result("pretrain-cpu/guessing")
    entropy, most = rotary["unigram_entropy"], percent(guess["mlm_guess"])
    rows = [
        ("masked-LM loss (nats)", *(f"{m['mlm_loss']:.2f}" for m in (rotary, learned)), f"{entropy:.2f} (frequencies)"),
        ("masked-LM accuracy (%)", *(percent(m["mlm_accuracy"]) for m in (rotary, learned)), f'{most} (always "the")'),
        ("NSP accuracy (%)", *(percent(m["nsp_accuracy"]) for m in (rotary, learned)), percent(guess["nsp_guess"])),
    ]
    return table(("held-out documents, length 128", "rotary, 20 M tokens", "learned, 38 M tokens", "guessing"), rows)


def fine_tuned() -> Lines:
    asked = [
        ("SST-2, accuracy", "2e-4, 1", "sst2", "accuracy"),
        ("MRPC, accuracy", "5e-5, 3", "mrpc5", "accuracy"),
        ("MRPC, F1", "5e-5, 3", "mrpc5", "f1"),
        ("MRPC, accuracy", "2e-4, 3", "mrpc", "accuracy"),
        ("CoNLL-2003, F1", "2e-4, 3", "ner", "f1"),
        ("CoNLL-2003, F1 on eng.testb", "2e-4, 3", "ner", "f1_test"),
    ]
    rows = []
    for task, settings, run, metric in asked:
        new, old = "finetune-cpu-rotary", "finetune"
        before = (RESULTS / old / f"{run}_pretrained").exists()
        runs = [f"{new}/{run}_pretrained", f"{new}/{run}_random", *([f"{old}/{run}_pretrained"] if before else [])]
        shown = [spread(one["metrics"][metric], one["std"][metric]) for one in (result(f"{r}/results") for r in runs)]
        rows.append((task, settings, *shown, *([] if before else ["-"]), effect(runs[1], runs[0], metric)))
    header = ("task", "rate, epochs", "pre-trained", "random", "predecessor", "effect (95 %)")
    return table(header, rows, words=2)


def effect(base: str, other: str, metric: str) -> str:
    """The difference of two runs of the same seeds, with its interval."""
    return difference_text(difference(seeds_of(base, metric), seeds_of(other, metric)))


def parity() -> Lines:
    asked = [
        ("MRPC", "mrpc", "f1"),
        ("MRPC", "mrpc", "accuracy"),
        ("MRPC, ours from transformers' head", "mrpc", "f1"),
        ("MRPC, ours from transformers' head", "mrpc", "accuracy"),
        ("MRPC, the same, its rows in any order", "mrpc", "f1"),
        ("MRPC, the same, its rows in any order", "mrpc", "accuracy"),
        ("RTE", "rte", "accuracy"),
        ("CoLA", "cola", "matthews"),
        ("STS-B", "stsb", "spearman"),
        ("STS-B", "stsb", "pearson"),
        ("STS-B, ours from transformers' head", "stsb", "spearman"),
        ("STS-B, ours from transformers' head", "stsb", "pearson"),
        ("STS-B, the same, its rows in any order", "stsb", "spearman"),
        ("STS-B, the same, its rows in any order", "stsb", "pearson"),
        ("SST-2, first 10,000 rows, 2 epochs", "sst2", "accuracy"),
        ("QNLI, 2 epochs", "qnli", "accuracy"),
        ("CoNLL-2003", "conll2003", "f1"),
        ("CoNLL-2003", "conll2003", "test_f1"),
        ("CoNLL-2003, ours from transformers' head", "conll2003", "f1"),
        ("CoNLL-2003, ours from transformers' head", "conll2003", "test_f1"),
        ("SQuAD 1.1, 13 % of its questions, 2 epochs", "squad1", "exact"),
        ("SQuAD 1.1, 13 % of its questions, 2 epochs", "squad1", "f1"),
        ("SQuAD 2.0, `small-train-v2.0.json`, 2 epochs", "squad2", "best_f1"),
        ("SQuAD 2.0, `small-train-v2.0.json`, 2 epochs", "squad2", "f1"),
    ]
    names = {"test_f1": "F1 on eng.testb", "f1": "F1", "best_f1": "F1 at its best threshold", "exact": "EM"}
    rows = []
    for task, key, metric in asked:
        found = result("benchmarks/finetuning_scores")["tasks"][key]
        side = "ours-same-head" if "head" in task or "the same" in task else "ours"
        other = "transformers-any-order" if "any order" in task else "transformers"
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
        ("CODAH, four choices", "codah", ("accuracy",)),
        ("types of names in a sentence, several labels", "entity-types", ("micro_f1", "exact_match")),
        ("which of 20 books a passage is from, first 128 tokens", "books-128", ("accuracy", "macro_f1")),
        ("the same, first 512 tokens", "books-512", ("accuracy", "macro_f1")),
    ]
    rows = []
    for task, run, metrics in asked:
        found = result(f"minilm/{run}/results")
        sizes = " / ".join(f"{found['examples'][part]:,}" for part in ("train", "dev"))
        for metric in metrics:
            shown = spread(found["metrics"][metric], found["std"][metric] if "std" in found else None)
            guess = percent(found["majority"]) if metric == metrics[0] else "-"
            seeds = str(len(found.get("seeds", [1])))
            rows.append((task, metric.replace("_", " "), shown, seeds, guess, sizes))
    return table(("task", "metric", "score", "seeds", "guessing", "train / dev rows"), rows, words=2)


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
    average = suite["average"]
    name = f"average of {len(average['of'])} tasks of GLUE"
    rows.append((name, percent(average["mean"]), "-", f"{average['paper']:.1f} test", ""))
    return table(("task, metric", "here", "guessing", "BERT-BASE", "train / dev rows"), rows)


def mrpc_sweep() -> Lines:
    """F1 on MRPC's development rows for every setting that the paper searched, with all-MiniLM-L6-v2."""
    settings = result("minilm/mrpc-sweep/results")["settings"]
    epochs = sorted({one["epochs"] for one in settings})
    rows: dict[tuple[int, float], list[str]] = {}
    for one in settings:
        rows.setdefault((one["batch_size"], one["lr"]), []).append(percent(one["metrics"]["f1"]))
    header = ("batch", "rate", *(f"{count:g} epochs" for count in epochs))
    named = [(str(batch), f"{rate:.0e}".replace("e-0", "e-"), *cells) for (batch, rate), cells in rows.items()]
    return table(header, named)


def continued() -> Lines:
    """Continued pre-training on the texts of a task, beside none and beside as much on the encoder's own corpus."""
    rows = []
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
            rows.append((f"{task}, {int(count):,} rows", *shown, *gains))
    header = ("accuracy", "as it is", "more of its own corpus", "texts of the task", "gain", "against its own corpus")
    return table(header, rows)


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
    header = ("Spearman on dev", "before", "ours", "sentence-transformers", "difference (95 %)", "seeds a side")
    return table(header, rows)


def korean() -> Lines:
    rows = []
    for task, run, metric in (
        ("NSMC, 40,000 reviews, 1 epoch, accuracy on 5,000", "nsmc", "accuracy"),
        ("KorSTS, 3 epochs, Spearman on dev", "korsts", "spearman"),
    ):
        runs = [f"korean/{run}-pre", f"korean/{run}-random"]
        shown = [spread(one["metrics"][metric], one["std"][metric]) for one in (result(f"{r}/results") for r in runs)]
        rows.append((task, *shown, effect(runs[1], runs[0], metric)))
    return table(("task", "this encoder (%)", "random weights (%)", "effect in points (95 % over seeds)"), rows)


def korean_held_out() -> Lines:
    sides = {"position heads, 40 % masked": "position-heads", "usual start, 15 % masked": "usual-start"}
    found = [result(f"korean/pretrain-{side}/results")["metrics"] for side in sides.values()]
    rows = [("masked-LM loss (nats)", *(f"{one['mlm_loss']:.2f}" for one in found))]
    for name, metric in (("masked-LM accuracy (%)", "mlm_accuracy"), ("next-sentence accuracy (%)", "nsp_accuracy")):
        rows.append((name, *(percent(one[metric]) for one in found)))
    return table(("held-out documents, 20 M tokens", *sides), rows)


def korean_sentences() -> Lines:
    rows = []
    for name, found in result("benchmarks/korean-sentences")["splitters"].items():
        shown = [percent(found[kind][key]) for kind in ("written", "reviews") for key in ("precision", "recall")]
        rows.append((name, *shown, percent(found["all"]["f1"]), f"{found['passages_a_second']:,}"))
    kinds = [f"{kind}: {key} (%)" for kind in ("written", "reviews") for key in ("precision", "recall")]
    return table(("splitter", *kinds, "all: F1 (%)", "passages/s"), rows)


def plateau() -> Lines:
    runs = result("plateau")["runs"]
    asked = [
        ("BERT: learned positions", "two layers"),
        ("four layers in place of two", "four layers"),
        ("twice the rate", "two layers, twice the rate"),
        ("half the batch", "two layers, half the batch"),
        ("initial spread of 0.0625 in place of 0.02", "two layers, initializer_range 0.0625"),
        (
            "the table of positions begun with sinusoids",
            "two layers, learned positions that begin as sinusoids of the tables' spread (patched code)",
        ),
        ("40 % of the tokens predicted", "two layers, 40 % predicted"),
        ("rotary positions", "two layers, rotary positions"),
        (
            "rotary positions, pre-LayerNorm, initial spread of 0.0625",
            "two layers, rotary positions, pre-LayerNorm, initializer_range 0.0625",
        ),
    ]
    near = [(label, runs[name]["near"]) for label, name in asked]
    shown = [(label, *(f"{one[at]:.2f}" for at in ("1 M tokens", "2 M tokens"))) for label, one in near]
    return table(("all else equal: masked-LM loss in training", "near 1 M tokens", "near 2 M tokens"), shown)


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


def demo_held_out() -> Lines:
    held = result("demo/results")["heldout"]
    rows = [
        ("masked-LM loss (nats)", f"{held['mlm_loss']:.2f}", f"{held['unigram_entropy']:.2f} (word frequencies)"),
        ("masked-LM accuracy (%)", percent(held["mlm_accuracy"]), f"{percent(held['mlm_guess'])} (commonest token)"),
        ("NSP accuracy (%)", percent(held["nsp_accuracy"]), f"{percent(held['nsp_guess'])} (commoner answer)"),
    ]
    return table(("held-out documents", "BERT", "guessing"), rows)


def demo_tasks(run: str = "demo") -> Lines:
    rows = []
    for name, label in (("tags", "tags, F1 (%)"), ("packages", "packages, accuracy (%)")):
        task = result(f"{run}/results")["tasks"][name]
        sides = [spread(side["mean"], side["sd"]) for side in task["sides"].values()]
        low, high = task["gain_interval"]
        effect = f"{percent(task['gain'], '+')} ({percent(low, '+')} to {percent(high, '+')})"
        rows.append((label, str(len(task["seeds"])), *sides, percent(task["linear"]["test"]), effect))
    return table(("task", "seeds", "pre-trained", "random weights", "linear model", "effect in points (95 %)"), rows)
