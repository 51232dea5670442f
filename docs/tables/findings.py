"""What the papers found and what is shown here: the picture of docs/results.md, the table of docs/results/studies.md.

The claims of studies were named before their runs. All other comparisons were chosen after the results were known: at
least one for each finding of a paper, where possible on the column that separates the encoders, named entities.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from scipy import stats
from sources import Lines, Values, result, seeds_of, study, table, values_in

from bertworks.experiments.claims import claimed, limited, limited_verdict, verdict
from bertworks.experiments.statistics import LEVEL, Difference, difference, difference_text, holm, p_text


@dataclass(frozen=True)
class Finding:
    """A finding of a paper, and the comparison of ours that it is judged by."""

    finding: str  # empty: as before
    paper: str  # its figure, in points
    here: str  # what is measured here
    source: str  # study of both rows
    column: str
    row: str = ""
    against: str = ""
    expect: str = "higher"
    beyond: tuple[str, ...] = ()  # two more rows, whose difference is subtracted
    margin: float = 0.01  # for "equal"
    paper_points: float | None = None  # the paper's difference in the same metric


FINDINGS = [
    Finding("pre-training helps", "-", "NER, 1,000 sentences", "mini", "NER 1,000", "mini", "random weights"),
    Finding("", "-", "SST-2, 1,000 reviews", "mini", "SST-2 1,000", "mini", "random weights"),
    Finding("", "-", "QNLI", "mini", "QNLI", "mini", "random weights"),
    Finding("", "-", "MRPC", "mini", "MRPC", "mini", "random weights"),
    Finding("", "-", "KLUE-NER", "mini-ko", "KLUE-NER", "mini-ko", "random weights"),
    Finding("", "-", "NSMC, 1,000 reviews", "mini-ko", "NSMC 1,000", "mini-ko", "random weights"),
    Finding("", "-", "NER, 6 M tokens", "pretraining-seeds", "NER", "BERT", "random weights"),
    Finding("", "-", "QQP, 6 M tokens", "pretraining-seeds", "QQP", "BERT", "random weights"),
    Finding("", "-", "MNLI, 6 M tokens", "tasks", "MNLI", "BERT", "random weights"),
    Finding("", "-", "NER, 18 M tokens", "tasks-longer", "NER", "BERT, 18 million tokens", "random weights"),
    Finding("", "-", "QQP, 18 M tokens", "tasks-longer", "QQP", "BERT, 18 million tokens", "random weights"),
    Finding("", "-", "SST-2, all examples", "runs", "accuracy", "sst2_pretrained", "sst2_random"),
    Finding(
        "an encoder beats other models",
        "-",
        "NER, word2vec + BiLSTM",
        "mini",
        "NER 1,000",
        "mini",
        "word2vec + BiLSTM",
    ),
    Finding("", "-", "NSMC, linear model", "mini-ko", "NSMC 1,000", "mini-ko", "linear model over characters"),
    Finding(
        "without NSP it is worse (table 5)",
        "QNLI -3.5",
        "QNLI",
        "tasks",
        "QNLI",
        "No NSP",
        "BERT",
        "lower",
        paper_points=-3.5,
    ),
    Finding("", "MNLI -0.5", "MNLI", "tasks", "MNLI", "No NSP", "BERT", "lower", paper_points=-0.5),
    Finding("", "-", "NER", "pretraining-seeds", "NER", "No NSP", "BERT", "lower"),
    Finding(
        "left-to-right is worse (table 5)",
        "MNLI -1.8, SQuAD -10.1",
        "NER, gap pre-trained minus gap random",
        "pretraining-seeds",
        "NER",
        "LTR & No NSP",
        "No NSP",
        "lower",
        ("random weights, left-to-right", "random weights"),
    ),
    Finding("", "-", "NER, pre-trained", "pretraining-seeds", "NER", "LTR & No NSP", "No NSP", "lower"),
    Finding(
        "",
        "-",
        "control: NER, random weights",
        "pretraining-seeds",
        "NER",
        "random weights, left-to-right",
        "random weights",
        "lower",
    ),
    Finding(
        "two concatenated directions are worse (5.1)",
        "-",
        "NER, against 18 M tokens",
        "tasks-longer",
        "NER",
        "LTR and RTL side by side",
        "BERT, 18 million tokens",
        "lower",
    ),
    Finding(
        "fewer layers are worse (table 6)",
        "MNLI -2.5 with half the layers",
        "NER",
        "size",
        "NER",
        "L1 H256 A4",
        "L2 H256 A4",
        "lower",
    ),
    Finding(
        "",
        "MNLI -2.5 with half the layers",
        "MNLI",
        "size",
        "MNLI",
        "L1 H256 A4",
        "L2 H256 A4",
        "lower",
        paper_points=-2.5,
    ),
    Finding(
        "features equal fine-tuning (table 7)",
        "NER -0.3",
        "NER, equal updates",
        "features",
        "NER dev",
        "both layers side by side",
        "fine-tuning",
        "equal",
        paper_points=-0.3,
    ),
    Finding(
        "the mix of masks matters little (table 8)",
        "NER -0.5",
        "NER, 100/0/0 against 80/10/10",
        "masking-low-rate",
        "NER, fine-tuning",
        "100/0/0",
        "80/10/10",
        "equal",
        paper_points=-0.5,
    ),
    Finding(
        "left-to-right ends below masked LM (figure 5)",
        "MNLI -2.2, read off the figure",
        "MNLI, at the end",
        "steps",
        "MNLI",
        "left-to-right",
        "masked LM",
        "lower",
        paper_points=-2.2,
    ),
    Finding("", "-", "NER, at the end", "steps", "NER", "left-to-right", "masked LM", "lower"),
    Finding(
        "sharing layers costs points (ALBERT)",
        "average -1.5 to -2.5",
        "NER, sharing and three other changes",
        "relatives",
        "",
        "ALBERT",
        "BERT",
        "lower",
    ),
    Finding(
        "a teacher helps (DistilBERT)",
        "keeps 97 %",
        "NER, against no teacher",
        "relatives",
        "",
        "DistilBERT",
        "two layers without a teacher",
    ),
    Finding("40 % masked is better (Wettig et al.)", "MNLI +0.3", "NER", "mask-rate", "NER", "40 %", "15 %"),
    Finding(
        "continued pre-training helps (Gururangan et al.)",
        "-",
        "SST-2, 1,000 reviews",
        "continued",
        "1000",
        "texts of the task",
        "as it is",
    ),
    Finding("", "-", "NSMC, 1,000 reviews", "continued-nsmc", "1000", "texts of the task", "as it is"),
]

ENCODERS = {  # what was pre-trained, by the source
    "mini": "`mini`",
    "mini-ko": "`mini-ko`",
    "runs": "`cpu`, version 0.1",
    "relatives": "4 layers, ten minutes",
    "continued-nsmc": "`korean`, version 0.2",
}
CONTINUED = ("continued", "continued-nsmc")  # in benchmarks/results: three encoders each, claims named before the runs
OTHERS = ("runs", "relatives", *CONTINUED)  # no studies


@dataclass(frozen=True)
class Judged:
    """A finding with our comparison and its verdict."""

    one: Finding
    title: str  # the finding of the paper; those of one finding have the same
    ours: Difference
    p: float  # of no difference; where equality is expected, of a difference within the margin
    corrected: float  # by Holm, over all comparisons of the table
    planned: bool  # a claim that was named before its runs
    verdict: str

    @property
    def collapsed(self) -> bool:
        """Whether a run of one of both rows collapsed to one answer."""
        entries = [] if self.one.source in OTHERS else study(self.one.source)["measured"]
        rows = (self.one.row, self.one.against, *self.one.beyond)
        return any(e["collapsed"] for e in entries if e["row"] in rows and e["column"] == self.one.column)

    @property
    def unit(self) -> str:
        """What n counts. Without pre-training it is means of all fine-tuning seeds."""
        if self.one.source in OTHERS:
            return "pre-trainings" if self.one.source in CONTINUED else "seeds"
        found = study(self.one.source)
        if found.get("pretrain_seeds"):
            trained = any(not row.startswith("random weights") for row in (self.one.row, self.one.against))
            several = f"× {len(found['seeds'])} " if len(found["seeds"]) > 1 else ""
            return "pre-trainings" if trained else f"{several}seeds"
        column = next(one for one in found["columns"] if one["name"] == self.one.column)
        return "draws" if column.get("draw") else "seeds"


@functools.cache
def judged() -> list[Judged]:
    """All comparisons. A claim is judged by its own p, as in its study, all others by the corrected p."""
    compared_ones = [
        (one, claimed(study(one.source)) if one.beyond else difference(*compared(one))) for one in FINDINGS
    ]
    found = [(one, ours, p_of(one, ours)) for one, ours in compared_ones if ours is not None]
    corrected, title = holm([p for _, _, p in found]), ""
    all_judged: list[Judged] = []
    for (one, ours, p), p_corrected in zip(found, corrected, strict=True):
        title, named = one.finding or title, planned(one)
        said = reserved(one, verdict(ours, one.expect, one.margin, p if named else p_corrected))
        all_judged.append(Judged(one, title, ours, p, p_corrected, named, said))
    return all_judged


def findings() -> Lines:
    """The table of all comparisons."""
    rows = [
        (
            f.title + (" *" if f.planned else ""),
            f.one.paper,
            f.one.here + " †" * f.collapsed,
            ENCODERS.get(f.one.source, "studies' encoder"),
            difference_text(f.ours),
            f"{f.ours.n} {f.unit}",
            p_text(f.p),
            p_text(f.corrected),
            f.verdict,
        )
        for f in judged()
    ]
    header = ("finding", "paper", "compared here", "encoder", "points (95 %)", "n", "p", "p, corrected", "verdict")
    return table(header, rows, words=4)


def claim_text(f: Judged, comparison: str, n: str) -> str:
    """A claim that was declared before its runs, with its result."""
    return (
        f"Claim, declared before its runs: {comparison}. Verdict: **{f.verdict}**. Difference: "
        f"{difference_text(f.ours)} points, p {p_text(f.p)}, n {n}."
    )


def planned(one: Finding) -> bool:
    """Whether a comparison is the claim of its study, named before the runs."""
    if one.source in OTHERS:
        return one.source in CONTINUED
    claim = study(one.source).get("claim")
    if claim is None or not claim["named_before"]:
        return False
    named = (claim["row"], claim["against"], claim["column"], *claim.get("beyond", ()))
    same = named == (one.row, one.against, one.column, *one.beyond)
    assert same or not one.beyond, one  # only claims have such differences
    return same


def p_of(one: Finding, ours: Difference) -> float:
    """p of no difference; where equality is expected, of a difference within the margin."""
    p = p_beyond(ours, one.margin) if one.expect == "equal" else ours.p
    assert p is not None, one  # all have several seeds, whose differences vary
    return p


def p_beyond(result: Difference, margin: float) -> float | None:
    """Two-sided p of a difference of at most `margin` in either direction; at most 5 % if the interval is outside."""
    if result.p is None or result.interval is None:
        return None
    error = (result.interval[1] - result.mean) / stats.t.ppf(1 - LEVEL / 2, result.n - 1)
    return float(2 * stats.t.sf(max(0.0, abs(result.mean) - margin) / error, result.n - 1))


def reserved(one: Finding, said: str) -> str:
    """A verdict, limited to the encoders of its rows."""
    if one.source in OTHERS:  # where n counts encoders in part
        return said if one.source in CONTINUED else limited(said, 2)
    return limited_verdict(said, study(one.source), (one.row, one.against))


def compared(one: Finding) -> tuple[Values, Values]:
    """The values that a finding compares: of the row that it is compared with, and of its own."""
    if one.source == "runs":
        return pair(seeds_of(f"finetune-cpu-rotary/{name}", one.column) for name in (one.against, one.row))
    if one.source == "relatives":
        sides = result("benchmarks/relatives")["sides"]
        scores = (sides[name]["scores"]["conll2003"]["f1"] for name in (one.against, one.row))
        return pair({str(seed): value for seed, value in enumerate(found)} for found in scores)
    if one.source in CONTINUED:
        values = result(f"benchmarks/{one.source}")["values"][one.column]
        return pair(values[name] for name in (one.against, one.row))
    return pair(values_in(one.source, name, one.column) for name in (one.against, one.row))


def pair(found: Iterable[Values]) -> tuple[Values, Values]:
    first, second = found
    return first, second
