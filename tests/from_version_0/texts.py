"""Made-up text and tables for make.sh, the same at every call. Written into the working directory."""

import csv
import json
import random
from pathlib import Path

THINGS = ["river", "garden", "letter", "window", "bridge", "orange", "village", "machine", "paper", "captain"]
DEEDS = ["opens", "finds", "carries", "follows", "paints", "watches", "repairs", "measures"]
WAYS = ["slowly", "quickly", "often", "gladly", "together", "again"]
NAMES = ["Anna", "Boris", "Clara", "David"]
PLACES = ["Norburg", "Sudfeld", "Ostheim"]
KOREAN_THINGS = ["강이", "다리가", "마을이"]
KOREAN_DEEDS = ["열린다", "보인다"]
KOREAN_WAYS = ["자주", "다시"]
MOODS = {"good": "warm", "bad": "cold"}  # the word that decides a label


def english(rng: random.Random, mood: str = "") -> str:
    mood = mood or rng.choice([*MOODS.values()])
    return f"the {mood} {rng.choice(THINGS)} {rng.choice(DEEDS)} the {rng.choice(THINGS)} {rng.choice(WAYS)}"


def korean(rng: random.Random) -> str:
    return f"{rng.choice(KOREAN_THINGS)} {rng.choice(KOREAN_WAYS)} {rng.choice(KOREAN_DEEDS)}"


def sentence(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.5:
        return english(rng).capitalize() + "."
    if kind < 0.75:
        return korean(rng) + "."
    return f"{rng.choice(NAMES)} {rng.choice(DEEDS)} a {rng.choice(THINGS)} in {rng.choice(PLACES)}."


def write_text(path: Path) -> None:
    """Documents with a blank line between."""
    rng = random.Random(1)
    documents = (" ".join(sentence(rng) for _ in range(rng.randint(4, 10))) for _ in range(60))
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")


def write_rows(folder: Path, name: str, rows: int) -> None:
    """Tables of one's own: texts with a label, words with tags, questions with an answer."""
    rng = random.Random(name)
    with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["text", "label"])
        for number in range(rows):
            label = ("good", "bad")[number % 2]
            writer.writerow([f"{english(rng, MOODS[label])}, {korean(rng)}", label])
    tagged, asked = [], []
    for number in range(rows):
        who, where = rng.choice(NAMES), rng.choice(PLACES)
        words = [who, rng.choice(DEEDS), "a", rng.choice(THINGS), "in", where]
        tagged.append({"words": " ".join(words), "tags": "B-PER O O O O B-LOC"})
        context = f"{english(rng)}. {who} {rng.choice(DEEDS)} in {where}."
        answer = {"question": "who", "answer": who} if number % 2 else {"question": "in which place", "answer": where}
        start = context.index(answer["answer"])
        asked.append({"id": f"{name}-{number}", "context": context, "answer_start": start, **answer})
    for kind, table in (("tags", tagged), ("questions", asked if name == "train" else asked[:8])):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in table)
        (folder / f"{name}-{kind}.jsonl").write_text("".join(lines), encoding="utf-8")


def write_glue(folder: Path, name: str, rows: int) -> None:
    """Two tasks in the layout of their official files."""
    rng = random.Random(name)
    single, pairs = ["sentence\tlabel"], ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    for number in range(rows):
        label = number % 2
        single.append(f"{english(rng, ['cold', 'warm'][label])}\t{label}")
        first = english(rng)
        pairs.append(f"{label}\t{number}\t{number}\t{first}\t{first if label else english(rng)}")
    for task, lines in (("SST-2", single), ("MRPC", pairs)):
        (folder / task).mkdir(parents=True, exist_ok=True)
        (folder / task / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    write_text(Path("text.txt"))
    Path("rows").mkdir(exist_ok=True)
    for name, rows in (("train", 64), ("dev", 24)):
        write_rows(Path("rows"), name, rows)
        write_glue(Path("glue"), name, rows)


if __name__ == "__main__":
    main()
