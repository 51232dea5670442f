"""What the papers found and what is shown here: the comparisons of the first table of docs/results.md.

Those of the studies `examples`, `features` and `korean` and the interaction of directions are claims that were named
before the runs. All others were chosen after the results were known.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sources import Lines, Values, result, seeds_of, study, table, values_in

from bertworks.experiments.claims import limited, limited_verdict, verdict
from bertworks.experiments.statistics import Difference, difference, difference_text, holm, p_beyond, p_text


@dataclass(frozen=True)
class Finding:
    """A finding of a paper, and the comparison of ours that it is judged by."""

    finding: str
    paper: str  # its figure, in points
    here: str  # column: row against row
    source: str = ""  # study of both rows; none: not run
    column: str = ""
    row: str = ""
    against: str = ""
    expect: str = "higher"
    margin: float = 0.01  # for "equal"
    percent: bool = True


FINDINGS = [
    Finding(
        "pre-training helps",
        "-",
        "NER, 1,000 sentences, 20 M tokens, four layers",
        "examples",
        "NER 1,000",
        "pre-trained",
        "random weights",
    ),
    Finding("", "-", "KLUE-NER, 20 M tokens, four layers", "korean", "KLUE-NER", "korean", "random weights"),
    Finding("", "-", "NER, 6 M tokens, three encoders", "pretraining-seeds", "NER", "BERT", "random weights"),
    Finding("", "-", "QQP, 6 M tokens, three encoders", "pretraining-seeds", "QQP", "BERT", "random weights"),
    Finding("", "-", "NER, 18 M tokens", "tasks-longer", "NER", "BERT, 18 million tokens", "random weights"),
    Finding("", "-", "QQP, 18 M tokens", "tasks-longer", "QQP", "BERT, 18 million tokens", "random weights"),
    Finding("", "-", "SST-2, 20 M tokens, four layers", "runs", "accuracy", "sst2_pretrained", "sst2_random"),
    Finding("", "-", "MRPC, 20 M tokens, four layers", "runs", "accuracy", "mrpc5_pretrained", "mrpc5_random"),
    Finding("without NSP worse (T5)", "QNLI -3.5", "QNLI", "tasks", "QNLI", "No NSP", "BERT", "lower"),
    Finding("", "MNLI -0.5", "MNLI", "tasks", "MNLI", "No NSP", "BERT", "lower"),
    Finding("", "-", "NER, three encoders", "pretraining-seeds", "NER", "No NSP", "BERT", "lower"),
    Finding(
        "one direction worse (T5)",
        "MNLI -1.8, SQuAD -10.1",
        "NER, three encoders",
        "pretraining-seeds",
        "NER",
        "LTR & No NSP",
        "No NSP",
        "lower",
    ),
    Finding(
        "",
        "-",
        "NER, no pre-training",
        "pretraining-seeds",
        "NER",
        "random weights, left-to-right",
        "random weights",
        "lower",
    ),
    Finding("", "-", "NER, the first of these gaps minus the second", "interaction", "NER", expect="lower"),
    Finding(
        "two directions side by side worse (5.1)",
        "-",
        "NER, against BERT of 18 M tokens",
        "tasks-longer",
        "NER",
        "LTR and RTL side by side",
        "BERT, 18 million tokens",
        "lower",
    ),
    Finding(
        "larger is better (T6)",
        "MNLI -2.5 with half the layers",
        "NER",
        "size",
        "NER",
        "L1 H256 A4",
        "L2 H256 A4",
        "lower",
    ),
    Finding("", "the same", "MNLI", "size", "MNLI", "L1 H256 A4", "L2 H256 A4", "lower"),
    Finding(
        "",
        "perplexity +0.69",
        "perplexity",
        "size",
        "perplexity",
        "L1 H256 A4",
        "L2 H256 A4",
        "higher",
        percent=False,
    ),
    Finding(
        "features equal fine-tuning (T7)",
        "-0.3",
        "NER, equal updates",
        "features",
        "NER dev",
        "both layers side by side",
        "fine-tuning",
        "equal",
    ),
    Finding(
        "the mix of masks matters little (T8)",
        "NER -0.5",
        "NER, 100/0/0 at rate 3e-4",
        "masking-low-rate",
        "NER, fine-tuning",
        "100/0/0",
        "80/10/10",
        "equal",
    ),
    Finding(
        "masked LM overtakes left-to-right (Fig. 5)",
        "MNLI, end: -2.2",
        "MNLI, end",
        "steps",
        "MNLI",
        "left-to-right",
        "masked LM",
        "lower",
    ),
    Finding("", "-", "NER, end", "steps", "NER", "left-to-right", "masked LM", "lower"),
    Finding("RoBERTa: dynamic masks equal static ones", "MNLI -0.3", "MNLI"),
    Finding("RoBERTa: whole inputs without NSP better", "MNLI +0.7", "MNLI"),
    Finding(
        "ALBERT: sharing costs",
        "average -2.5",
        "NER, with three other changes",
        "relatives",
        "",
        "ALBERT",
        "BERT",
        "lower",
    ),
    Finding(
        "DistilBERT: a teacher helps",
        "keeps 97 %",
        "NER, against the same student alone",
        "relatives",
        "",
        "DistilBERT",
        "two layers without a teacher",
    ),
    Finding("Wettig: 40 % masked is better", "MNLI +0.3", "NER", "mask-rate", "NER", "40 %", "15 %"),
]


def findings() -> Lines:
    """The table, with Holm's correction over all its comparisons that have a p."""
    pairs = [compared(one) for one in FINDINGS]
    found = [difference(*pair) if pair else None for pair in pairs]
    each = [p_of(one, ours) for one, ours in zip(FINDINGS, found, strict=True)]
    tested = {i: p for i, p in enumerate(each) if p is not None}
    corrected = dict(zip(tested, holm([*tested.values()]), strict=True))
    rows = []
    for i, (one, ours) in enumerate(zip(FINDINGS, found, strict=True)):
        shown = "-" if ours is None else f"{one.here}: {difference_text(ours, one.percent)}"
        p_said, n = p_text(corrected[i]) if i in corrected else "-", "-" if ours is None else str(ours.n)
        said = reserved(one, verdict(ours, one.expect, one.margin, corrected.get(i)))
        rows.append((one.finding, one.paper, shown, n, p_said, said))
    note = (
        f"p: paired t-test of no difference, with Holm's correction over the {len(tested)} comparisons of this table "
        "that have one; where equality is expected, of a difference within 1 point. The intervals are not corrected, "
        "so one without zero may stand beside a large p. The first two comparisons, that of features and that of the "
        "two gaps are claims named before the runs. All others were chosen after the results were known."
    )
    return [*table(("finding", "paper", "here (95 %)", "n", "p", "verdict"), rows, words=3), "", note]


def p_of(one: Finding, ours: Difference | None) -> float | None:
    """p of no difference; where equality is expected, of a difference within the margin."""
    if ours is None:
        return None
    return p_beyond(ours, one.margin) if one.expect == "equal" else ours.p


def reserved(one: Finding, said: str) -> str:
    """A verdict, limited to the encoders of its rows."""
    if one.source == "interaction":  # n counts encoders
        return said
    if one.source in ("runs", "relatives"):
        return limited(said, 2)
    return limited_verdict(said, study(one.source), (one.row, one.against)) if one.source else said


def compared(one: Finding) -> tuple[Values, Values] | None:
    """The values that a finding compares: of the row that it is compared with, and of its own; None: not run."""
    if one.source == "runs":
        return pair(seeds_of(f"finetune-cpu-rotary/{name}", one.column) for name in (one.against, one.row))
    if one.source == "relatives":
        sides = result("benchmarks/relatives")["sides"]
        scores = (sides[name]["scores"]["conll2003"]["f1"] for name in (one.against, one.row))
        return pair({str(seed): value for seed, value in enumerate(found)} for found in scores)
    if one.source == "interaction":
        names = ("random weights", "random weights, left-to-right", "No NSP", "LTR & No NSP")
        both, left, masked, ltr = (values_in("pretraining-seeds", name, "NER") for name in names)
        return {s: left[s] - both[s] for s in both}, {s: ltr[s] - masked[s] for s in masked}
    if one.source:
        return pair(values_in(one.source, name, one.column) for name in (one.against, one.row))
    return None


def pair(found: Iterable[Values]) -> tuple[Values, Values]:
    first, second = found
    return first, second
