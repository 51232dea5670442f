"""The tables and pictures of the pages of results, and of studies, are what their JSON files say."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bertworks.apps.demo.tables import score_rows
from bertworks.experiments.statistics import difference
from bertworks.experiments.tables import load_results, tables_text
from bertworks.reporting.log import duration

ROOT = Path(__file__).parents[1]
WRITE = ROOT / "docs" / "tables" / "write.py"
[NAMES] = re.findall(r"NAMES = \((.*?)\)", WRITE.read_text(), re.DOTALL)
PAGES = [ROOT / f"docs/{name}.md" for name in re.findall(r'"([a-z/]+)"', NAMES)]
STUDIES = sorted(path.parent for path in (ROOT / "docs/results/studies").rglob("results.json"))


def written(root, *flags):
    """The end of the script in a copy of the repository's pages, and what it printed as an error."""
    done = subprocess.run([sys.executable, root / "docs/tables/write.py", *flags], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_the_pages_are_written_from_their_files():
    assert written(ROOT, "--check") == (0, "")


def test_the_charts_of_readme_are_drawn_from_their_files(tmp_path, monkeypatch):
    """Drawn again they are the same, and README describes their ratios in words."""
    monkeypatch.syspath_prepend(str(ROOT / "docs/tables"))
    import charts
    import speed

    monkeypatch.setattr(charts, "CHARTS", tmp_path)
    charts.main()
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (ROOT / "docs/results/charts" / path.name).read_bytes(), path.name
    first, *ratios = (f"{ratio:.1f}" for *_, ratio in charts.speed())
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"pre-training {first}, fine-tuning {ratios[0]} and {ratios[1]}, vectors {ratios[2]}" in text
    amx, fast, slow = ([one["ratio"] for one in speed._pretraining(machine)] for machine in speed.RUNS)
    lowest = min(one["without_dropout"]["ratio"] for one in speed._pretraining("slower EPYC"))
    assert first == f"{min(amx):.1f}" and f"at least {lowest:.1f} times as fast" in text
    assert f"and {speed._span(speed._masked('slower EPYC')).split()[0]} times" in text.replace("\n", " ")
    assert f"pre-training {speed._span(fast + slow)}" in text
    means = {(one["row"], one["column"]): one["mean"] for one in charts.study("mini")["measured"]}
    assert f"On all of SST-2 it has {100 * means['mini', 'SST-2']:.1f} %" in text


def test_figures_of_the_gpu_are_those_of_its_files():
    """The table of steps, and the figures of the sentences around it: no script writes them."""

    def read(name):
        return json.loads((ROOT / f"benchmarks/results/gpu/{name}.json").read_text(encoding="utf-8"))

    page, log = ((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("scale", "log"))
    section = page.split("## Measured on an H200")[1].split("\n## ")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    steps, traces = read("steps-rectangle")["cells"], read("traces")["cells"]
    labels = {"base-128-0.1": "BASE, 128, 0.1", "base-128-0": "BASE, 128, 0", "base-512-0.1": "BASE, 512, 0.1"}
    for name, label in (labels | {"large-128-0.1": "LARGE, 128, 0.1"}).items():
        step = steps[f"{name}-compiled"]
        numbers = (f"{step['tokens_per_second']:,}", f"{1e3 * step['step_seconds']:.0f} ms")
        assert [
            *(label, *numbers, f"{100 * step['share_of_data_sheet']:.1f} %", f"{step['memory'] / 1e9:.1f} GB")
        ] in lines
        seconds = step["seconds_of_each_step"][4:]  # the others were not measured
        tokens = step["tokens_per_second"] * sum(seconds) / len(seconds) / (256 * int(label.split(", ")[1]))
        assert f"{tokens:.1f}" == ("0.8" if "512" in label else "0.9")
    assert "90 % of the positions at length 128 and 80 % at 512 were tokens" in section
    for name, label in (("base-128", "BASE, 128"), ("base-512", "BASE, 512"), ("large-128", "LARGE, 128")):
        trace = traces[f"{name}-0.1-compiled"]
        assert [label, *(f"{1e3 * trace[key]:.0f} ms" for key in ("step_seconds", "busy_seconds"))] in lines
    tests, ceilings, run = read("tests"), read("ceilings"), read("pretraining-no-warm-up")
    assert tests["counts"] == {"passed": len(tests["tests"])}
    assert f"All {len(tests['tests'])} tests for GPUs of that commit pass" in section
    squares = (ceilings[f"square, torch.{kind}"]["flops_per_second"] / 1e12 for kind in ("bfloat16", "float32"))
    assert "matrices {:.0f} TFLOP/s in bfloat16 and {:.0f} in float32".format(*squares) in log
    pairs = []
    for name in ("base, 128", "base, 512", "large, 128", "large, 512"):
        ways = (f"{way}, dropout 0.1" for way in ("rectangle with mask", "varlen, aten"))
        pairs += [f"{1e3 * ceilings[f'attention, {name}'][way]['both_seconds']:.2f}" for way in ways]
    assert re.findall(r"\d\.\d\d", log.split("- Attention of a layer, ")[1].split("\n- ")[0]) == pairs
    metrics = run["results"]["metrics"]
    assert f"ended at {metrics['mlm_loss']:.2f} nats" in section and f"{metrics['unigram_entropy']:.2f}" in section


def test_the_page_of_kills_and_hostile_files_has_the_present_commands(monkeypatch):
    """Every command and reader of the two programs is in the tables and no other; the text has their sums."""
    for folder in ("docs/tables", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    import attacks

    import hostile_inputs
    import kills_commands

    kills, hostile = (attacks.result(f"benchmarks/{name}") for name in ("kills", "hostile"))
    assert {*kills["commands"]} - attacks.REMOVED == {*kills_commands.COMMANDS}
    readers = {reader.name for reader in hostile_inputs.READERS}
    assert {*hostile["readers"]} - attacks.NO_LONGER_ATTACKED == readers
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    *_, forms, runs, killed, findings = attacks.kills()[-1].strip("| ").split(" | ")
    *_, number, cases, _, _, faults, _ = attacks.hostile()[-1].strip("| ").split(" | ")
    assert int(forms) == len(kills_commands.COMMANDS) and int(number) == len(readers) and findings == faults == "0"
    assert f"| {killed} kills in {runs} runs of {len(attacks.kills()) - 3} commands" in page
    assert f"| {int(cases):,} commands: all" in page
    left_out = hostile["cases"] - int(cases), len(attacks.NO_LONGER_ATTACKED)
    assert "{} cases on {} readers".format(*left_out) in page
    assert f"{kills['kills'] - int(killed)} kills of `track`" in page


def test_verdicts_of_the_page_say_no_more_than_was_found():
    """One verdict for a finding: a claim named before its runs by its own p, all others by the corrected one."""
    text = "".join((ROOT / f"docs/results/{page}.md").read_text("utf-8") for page in ("encoders", "studies"))
    table = text.split("<!-- table: findings -->")[1].split("<!-- end -->")[0].strip().splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    claims = re.findall(r"^Claim, .* Verdict: \*\*(.+)\*\*\. Difference: (.*) points, p (.*), n ", text, re.MULTILINE)
    planned = [(said, ours, p.removeprefix("\\")) for title, *_, ours, _, p, _, said in rows if title.endswith("*")]
    assert sorted(claims) == sorted(planned) and len(claims) == 6
    folders = [*STUDIES, *(ROOT / "docs/results/encoders").glob("mini*/study")]
    reports = [(folder / "study.md").read_text("utf-8") for folder in folders]
    found = [re.search(r"\| verdict \| (.*) \|", one)[1] for one in reports if "named before its rows were run." in one]
    assert sorted([*found, "not shown", "shown"]) == sorted(said for said, *_ in claims)  # continued pre-training
    rule = text.split("## How to read the figures")[1]
    assert all(f"(corrected {corrected})" in rule for title, *_, corrected, _ in rows if title.endswith("*"))
    for title, _, here, _, _, n, p, corrected, said in rows:
        if "shown" in said and said != "not shown":
            assert float((p if title.endswith("*") else corrected).removeprefix("\\< ")) <= 0.05
        if said == "shown":  # without "for this encoder": n counts encoders
            assert n == ("3 × 2 seeds" if "random weights" in here else "3 pre-trainings")
    said = [said.split(",")[0] for *_, said in rows]
    assert (said.count("shown"), said.count("not shown"), len(said)) == (7, 23, 32), "change sentences that count them"


def test_p_of_a_difference_beyond_a_margin_agrees_with_the_interval(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs/tables"))
    from findings import p_beyond

    result = difference({"1": 0.50, "2": 0.60, "3": 0.40}, {"1": 0.60, "2": 0.65, "3": 0.55})
    assert p_beyond(result, 0.0) == pytest.approx(result.p) and p_beyond(result, 0.2) == 1
    result = difference({"1": 0.5, "2": 0.5, "3": 0.5}, {"1": 0.6, "2": 0.61, "3": 0.62})
    assert p_beyond(result, result.interval[0]) == pytest.approx(0.05)


def test_a_changed_figure_is_noticed_and_written_anew(tmp_path):
    for folder in ("docs", "benchmarks/results"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    page, picture = (tmp_path / f"docs/results{name}" for name in ("/studies.md", "/findings.png"))
    before = page.read_text("utf-8")
    changed = re.sub(r"(\| BERT, 18 million tokens \| )\d", r"\g<1>1", before)
    page.write_text(changed, "utf-8")
    held_out = tmp_path / "docs/results/encoders/mini/held-out.json"
    held_out.write_text(re.sub(r'"parameters": \d', '"parameters": 9', held_out.read_text("utf-8")), "utf-8")
    status, message = written(tmp_path, "--check")
    assert changed != before and status == 1 and "tables are out of date; run python docs/tables/write.py" in message
    assert written(tmp_path) == (0, "") and page.read_text("utf-8") == before
    assert "| `mini`, bundled: 4 layers | 9.6 |" in (tmp_path / "docs/results.md").read_text("utf-8")
    shutil.copy(tmp_path / "docs/results/position-heads/loss.png", picture)  # which shows other data
    status, message = written(tmp_path, "--check")
    assert status == 1 and "findings.png: the picture is out of date" in message


def test_every_table_of_the_script_is_on_a_page():
    text = "".join(page.read_text("utf-8") for page in PAGES)
    names = re.findall(r'^    "([a-z0-9-]+)": ', WRITE.read_text("utf-8"), re.MULTILINE)
    assert sorted(re.findall(r"^<!-- table: (\S+) -->$", text, re.MULTILINE)) == sorted(names) and len(names) > 10
    assert text.count("<!-- table: ") == text.count("<!-- end -->")


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_the_tables_of_a_study_are_written_from_its_results(folder):
    assert (folder / "study.md").read_text("utf-8") == tables_text(load_results(folder), folder)


@pytest.mark.parametrize("page", ["README.md", "docs/demo.md"])
def test_the_demo_on_pages_is_the_recorded_one(page):
    results = json.loads((ROOT / "docs/results/demo/results.json").read_text(encoding="utf-8"))
    lines = {" ".join(line.strip("┃│ ").replace("│", " ").split()) for line in (ROOT / page).open(encoding="utf-8")}
    assert {f"{name} {100 * mean:.1f}" for name, mean, _ in score_rows(results)} <= lines
    assert f"{duration(results['seconds'])}; report: runs/demo/report.html" in lines
