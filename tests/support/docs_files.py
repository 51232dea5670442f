"""The files that README and the docs name, as small as they may be: their commands and snippets run on them."""

import contextlib
import itertools
import json
import random
import re
import shlex
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import zstandard

from bertworks.cli import main
from bertworks.tokenizer import SPECIAL_TOKENS
from conftest import WORDS, tiny_texts

from .original import write_original
from .studies import words, write_task_files

KEPT = Path(__file__).parents[1] / "data_of_0_1"  # small finished runs
TINY = "--model.num-hidden-layers 4 --model.hidden-size 16 --model.num-attention-heads 2 --model.intermediate-size 32"
SHALLOW = TINY.replace("layers 4", "layers 1")  # whose graphs compile in a third of the time
SHORT = "--loop.tokens 1000 --eval-batches 1"
KOREAN_TOKENS = 4928  # of the vocabulary of `korean_texts`
KOREAN = f"pretrain korean --texts korean/ --encoding cp949 --language ko {SHALLOW} {SHORT}"
MADE_BY = (  # a vocabulary, a store and runs, by the names that the docs use
    "tokenizer train texts/ --out tok --vocab-size 8192 --uncased",
    "corpus build texts/ --tokenizer tok --out store",
    f"pretrain cpu --corpus store --out runs/base {TINY} {SHORT}",
    f"pretrain cpu --corpus store --out runs/shallow {SHALLOW} {SHORT}",
    "finetune --task sst2 --data glue/SST-2 --model runs/shallow --out runs/sst2 --epochs 1 --max-seq-length 16",
    "finetune --task mrpc --data glue/MRPC --model runs/base --out runs/mrpc --epochs 1 --max-seq-length 16",
    "finetune --task swag --data swag --model runs/base --out runs/swag --epochs 1 --max-seq-length 16",
    "finetune --train letters.csv --dev letters.csv --kind multilabel --model runs/base --out runs/letters "
    "--max-seq-length 16",
    f"{KOREAN} --corpus ko --out runs/korean",
    "finetune --task nsmc --data nsmc --model runs/korean --out runs/nsmc-mini --epochs 1 --max-seq-length 16",
)


def shortened(line: str, more: str) -> str:
    """A command with the flags of `more`, which take the place of the command's own ones of these names.

    The 18 settings of the paper's grid become two.
    """
    line = re.sub("(study sweep .*) paper ", r"\1 optim.lr=3e-5,2e-5 ", line)
    names = {word for word in shlex.split(more) if word.startswith("--")}
    kept, dropped = list[str](), False
    for word in shlex.split(line):
        if word.startswith("--"):
            dropped = word.partition("=")[0] in names
        if not dropped:
            kept.append(word)
    return f"{shlex.join(kept)} {more}"


def write(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def korean_texts() -> list[list[str]]:
    """The lines of twelve texts, whose vocabulary has KOREAN_TOKENS tokens."""
    syllables = "가나다라마바사아자차카타파하"
    more = "좋았다. 그래서 {}번 더 보았습니다."
    return [[f"{s}방{'은을이'[(i + j) % 3]} {more.format(i)}" for j, s in enumerate(syllables)] for i in range(12)]


def write_korean(folder: Path) -> None:
    """The Korean texts once more, as one file each, and Korean named entities."""
    texts = korean_texts()
    write(folder / "articles.txt", [line for lines in texts for line in (*lines, "")])
    write(folder / "news.jsonl", [json.dumps({"text": "\n".join(lines)}) for lines in texts])
    places = itertools.product(range(9), ("가방", "나방"), ("다방", "라방"))
    sentences = [f"{name}은 {place}에 {i}번 갔다." for i, name, place in places]
    tags = ["B-PS", "I-PS", "O", "O", "B-LC", "I-LC", *["O"] * 8]
    write(folder / "names.jsonl", [json.dumps({"character": text, "tags": tags}) for text in sentences])
    spans = [[0, 2, "PS"], [4, 6, "LC"]]
    write(folder / "export.jsonl", [json.dumps({"text": text, "label": spans}) for text in sentences])
    alike = [f"main\tx\t1\t{i}\t{i % 6}.0\t{text}\t{sentences[i % 7]}" for i, text in enumerate(sentences)]
    for name in ("train", "dev"):
        header = "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2"
        write(folder / "kor-nlu-datasets/KorSTS" / f"sts-{name}.tsv", [header, *alike])
    write(folder / "faq.csv", ["질문,답변", *(f"{i}번은 어디에 갔나요?,{text}" for i, text in enumerate(sentences))])
    columns = ["\n".join(f"{one}\t{tag}" for one, tag in zip(text, tags, strict=True)) + "\n" for text in sentences]
    for name in ("train", "dev"):
        write(folder / "KLUE/klue_benchmark/klue-ner-v1.1" / f"klue-ner-v1.1_{name}.tsv", columns)


def write_data(folder: Path) -> None:
    """Every file that README's lines name, as small as it may be."""
    rng = random.Random(1)
    lexicon = ["".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randint(3, 9))) for _ in range(6000)]  # 8,192 pieces
    for i, text in enumerate(tiny_texts(200)):
        sentences = (" ".join(lexicon[j : j + 8]) for j in range(30 * i, 30 * i + 30, 8) for _ in range(3))
        write(folder / "texts" / f"{i}.txt", [text, *(f"{sentence.capitalize()}." for sentence in sentences)])
    for i, lines in enumerate(korean_texts()):
        write(folder / "texts-ko" / f"{i}.txt", lines)
        write(folder / "korean" / f"{i}.txt", lines)
        path = folder / "korean" / f"{i}.txt"
        path.write_bytes(path.read_text("utf-8").encode("cp949"))
    spans = [{"text": words(rng), "label": [[0, 3, "PER"]]} for _ in range(40)]
    write(folder / "export.json", [json.dumps(spans)])
    write(folder / "blimp/data/pairs.jsonl", [json.dumps({"sentence_good": "a b", "sentence_bad": "b a"})])
    write(folder / "questions.csv", ["a,b", *(f"{words(rng)},{words(rng)}" for _ in range(40))])
    write(folder / "pairs.csv", ["a,b,score", *(f"{words(rng)},{words(rng)},{i % 6}" for i in range(40))])
    for name in ("own.csv", "reviews.csv"):
        write(folder / name, ["text,label,user", *(f"{words(rng)},{i % 2},{i // 4}" for i in range(40))])
    write(folder / "test.csv", ["text,label", *(f"{words(rng)},{i % 2}" for i in range(20))])
    for name in ("texts.txt", "reviews.txt"):
        write(folder / name, [words(rng), "", words(rng)])
    write_task_files(folder, ["glue/SST-2", "glue/MRPC"])
    write_task_files(folder / "data", ["glue/MNLI"])
    for name, rows in (("train", 32), ("dev", 12)):
        tagged = [{"words": words(rng).split(), "tags": ["B-PER", "I-PER", "O", "O", "B-LOC"]} for _ in range(rows)]
        write(folder / {"train": "a.jsonl", "dev": "b.jsonl"}[name], list(map(json.dumps, tagged)))
    for name in ("eng.train", "eng.testa", "eng.testb"):
        tokens = [f"{word} NN I-NP I-PER\n{words(rng, 1)} VB I-NP O\n" for word in WORDS]
        write(folder / "data/conll2003" / name, ["-DOCSTART- -X- -X- O\n", *tokens])


def write_tables(folder: Path) -> None:
    """The tables, texts, words and vectors of one's own that the docs name."""
    rng = random.Random(2)
    for name, rows in (("a", 24), ("b", 12)):
        topics = ["law" if i % 2 else "sport" for i in range(rows)]
        asked = [{"question": words(rng), "answer": words(rng), "topic": topic} for topic in topics]
        if name == "b":
            write(folder / "b.jsonl", list(map(json.dumps, asked)))
        else:
            write(folder / "a.csv", ["question,answer,topic", *(",".join(row.values()) for row in asked)])
    for name, rows in (("train", 24), ("dev", 12)):
        texts = [f"{words(rng)},{('law', 'sport')[i % 2]}" for i in range(rows)]
        write(folder / "topics" / f"{name}.csv", ["text,topic", *texts])
        choices = (",".join(words(rng, 2) for _ in range(6)) for _ in range(rows))
        header = "sent1,sent2,ending0,ending1,ending2,ending3,label"
        endings = [f"{row},{i % 4}" for i, row in enumerate(choices)]
        write(folder / "swag" / {"train": "train.csv", "dev": "val.csv"}[name], [header, *endings])
    shutil.copytree(folder / "data/conll2003", folder / "conll2003")
    write_korean(folder)
    reviews = [[f"{words(rng)}", ("좋음", "나쁨")[i % 2], f"쓴이 {i // 3}"] for i in range(36)]
    for name in ("reviews-ko", "reviews-new"):
        write_sheet(folder / f"{name}.xlsx", [["본문", "분류", "작성자"], *reviews])
    lines = "".join(",".join(row) + "\n" for row in [["본문", "분류", "작성자"], *reviews])
    (folder / "reviews-cp949.csv").write_bytes(lines.encode("cp949"))
    films = [f"{i}\t{words(rng)}\t{i % 2}" for i in range(24)]
    for part, name in itertools.product(("nsmc", "nsmc-small"), ("train", "test")):
        write(folder / part / f"ratings_{name}.txt", ["id\tdocument\tlabel", *films])
    sets = [f"{words(rng)},{'|'.join('xyz'[: i % 4])}" for i in range(12)]
    write(folder / "letters.csv", ["text,label", *sets])
    write(folder / "rows.csv", ["question,answer", *(f"{words(rng)},{words(rng)}" for _ in range(4))])
    write(folder / "pairs.tsv", ["first\tsecond", *(f"{words(rng)}\t{words(rng)}" for _ in range(4))])
    for name in ("lines.txt", "x.txt"):
        write(folder / name, [words(rng), words(rng)])
    german = ["#\tnews [2005]", "1\tKim\tB-PER\tO", "2\tin\tO\tO", "3\tSeoul\tB-LOC\tO\n"]
    for name in ("NER-de-train.tsv", "NER-de-dev.tsv"):
        write(folder / name, german * 4)
    universal = ["1\t{0}\t_\tVERB" + "\t_" * 6, "2\tKim\t_\tPROPN" + "\t_" * 6 + "\n"]
    write(folder / "de.conllu", [line.format(f"ran{i}") for i in range(20) for line in universal])
    write(folder / "dev.conll", ["Kim B-PER", "ran O\n"])
    write(folder / "names.conll", [f"Kim B-PER\nran{i} O\n" for i in range(20)])
    write(folder / "conll.txt", ["The DT B-NP O\nbank NN I-NP O\n", "of IN B-PP O\nSeoul NNP B-NP B-LOC\n"])
    paragraph = {"context": "It was written by Kim in 1987.", "qas": [{"id": "1", "question": "Who wrote it?"}]}
    write(folder / "questions.json", [json.dumps({"data": [{"title": "", "paragraphs": [paragraph]}]})])
    bank = ["She put money in the bank.", "", "He sat on the bank of the river.", *["The dog saw the cat."] * 9]
    write(folder / "texts" / "bank.txt", bank)
    with zstandard.open(folder / "books.tar.zst", "wb") as file, tarfile.open(fileobj=file, mode="w|") as books:
        books.add(folder / "texts/bank.txt", "bank.txt")
    write(folder / "small.txt", [text + "\n" for text in tiny_texts(60)])
    write(folder / "drugs.txt", ["aspirin", "ibuprofen"])
    pairs = [f"{i}\t1\t2\t{words(rng)}\t{words(rng)}" for i in range(6)]
    write(folder / "glue/MRPC/test.tsv", ["index\t#1 ID\t#2 ID\t#1 String\t#2 String", *pairs])
    write(folder / "glue/SST-2/test.tsv", ["index\tsentence", *(f"{i}\t{words(rng)}" for i in range(6))])


def write_sheet(path: Path, rows: list[list[str]]) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)


def write_all(folder: Path) -> None:
    """These files, a vocabulary, a store and finished runs, and models of other software."""
    write_data(folder)
    write_tables(folder)
    with contextlib.chdir(folder):
        for line in MADE_BY:
            main(line.split())
    for name, kept in {"ner": "finetune-tagging", "squad": "finetune-span"}.items():
        shutil.copytree(KEPT / kept, folder / "runs" / name)
    for name in ("first", "demo"):
        shutil.copytree(folder / "runs/base", folder / "runs" / name)
    shutil.copytree(folder / "runs/korean/model", folder / "tok-ko")
    shutil.copytree(folder / "runs/base", folder / "runs/demo/pretrain")
    write_foreign_models(folder)


def write_foreign_models(folder: Path) -> None:
    """Models and vocabularies of other software that the docs name."""
    import torch
    from safetensors.torch import load_file

    from bertworks.checkpoint.folder import save_folder
    from bertworks.checkpoint.pooling import Pooling, write_pooling
    from bertworks.model.build import build_model
    from bertworks.model.config import ModelConfig
    from bertworks.tokenizer import Tokenizer

    write_original(folder / "uncased_L-12_H-768_A-12", [*SPECIAL_TOKENS, *"abcdefghij"])
    tokenizer = Tokenizer.load(folder / "tok")
    bert = ModelConfig(tokenizer.vocab_size, 8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    albert = replace(bert, family="albert", embedding_size=4, shared_layers="all")
    for name, config in (("old-folder", bert), ("albert_base", albert)):
        save_folder(folder / name, build_model(config, seed=1), tokenizer)
    with contextlib.chdir(folder):
        main(["convert", "old-folder", "all-MiniLM-L6-v2"])
    write_pooling(folder / "all-MiniLM-L6-v2", Pooling(), width=8)
    weights = folder / "old-folder/model.safetensors"
    torch.save(load_file(weights), folder / "old-folder/pytorch_model.bin")
    weights.unlink()
    shutil.copy(folder / "tok/vocab.txt", folder / "bert-base-uncased.txt")
    (folder / "roberta-base").mkdir()
    tokens = [*"abcdefghijklmnopqrstuvwxyzĠ", "un", "<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    write(folder / "roberta-base/vocab.json", [json.dumps({token: i for i, token in enumerate(tokens)})])
    write(folder / "roberta-base/merges.txt", ["#version: 0.2", "u n"])
