"""The tables of the Korean pages: the scores of `mini-ko`, and search."""

from sources import Lines, percent, result, spread, study, table

TASKS = {  # columns of the study of mini-ko
    "KLUE-NER": "KLUE-NER(검증 데이터의 5분의 4로 학습, 5분의 1로 평가), F1",
    "NSMC 1,000": "NSMC 리뷰 1,000건, 정확도",
    "NSMC": "NSMC 리뷰 4만 건, 정확도",
    "KorSTS, no training": "KorSTS(학습 없이 벡터의 코사인), 스피어만 상관계수",
    "KorSTS": "KorSTS(문장 쌍 회귀), 스피어만 상관계수",
    "KorSTS, embedder": "KorSTS(임베더), 스피어만 상관계수",
    "KorQuAD": "KorQuAD(검증 데이터의 5분의 4로 학습, 5분의 1로 평가), 글자 단위 F1",
}


def mini_ko() -> Lines:
    """The bundled encoder beside a linear model over characters and random weights, where it was measured.

    †: some of the runs gave one answer everywhere; the page says how many.
    """
    values = {(e["row"], e["column"]): e for e in study("mini-ko")["measured"]}

    def cell(row: str, column: str) -> str:
        one = values.get((row, column), {"n": 0})
        mark = " †" if one.get("collapsed") else ""
        return f"{spread(one['mean'], one['sd'])} ({one['n']}){mark}" if one["n"] else "-"

    systems = ("mini-ko", "linear model over characters", "random weights")
    rows = [(text, *(cell(one, name) for one in systems)) for name, text in TASKS.items()]
    head = ("과제 (점수 × 100)", "`mini-ko`", "글자 선형 모델", "사전학습 없음")
    return table(head, [row for row in rows if row[1] != "-"])


def embedder() -> Lines:
    """Search: TF-IDF, BM25, and the bundled encoder before and after training on KorSTS."""
    searched = result("encoders/mini-ko/search")["methods"]
    names = {
        "TF-IDF": "글자 TF-IDF의 코사인",
        "BM25": "글자 바이그램 BM25",
        "mini-ko": "`mini-ko`, 학습하기 전",
        "korsts": "`mini-ko`, KorSTS로 학습한 뒤",
    }

    def measured(one: dict[str, float]) -> list[str]:
        return [percent(one[metric]) if metric in one else "-" for metric in ("spearman", "recall_at_1", "mrr")]

    rows = [(text, *measured(searched[name])) for name, text in names.items()]
    return table(("방법", "KorSTS, 스피어만 상관계수", "KorQuAD, recall@1", "KorQuAD, MRR"), rows)
