"""The tables of the Korean pages: the encoder of the recipe `korean`, and embedders made from it."""

import statistics

from sources import Lines, percent, result, spread, study, table

from bertworks.experiments.statistics import difference, difference_text

TASKS = {
    "KLUE-NER": "KLUE-NER(검증 데이터의 5분의 1로 평가), F1",
    "NSMC 1,000": "NSMC 리뷰 1,000건, 정확도",
    "KorSTS": "KorSTS(문장 쌍 회귀), 스피어만 상관계수",
    "HellaSwag": "KoBEST HellaSwag, 정확도(무작위로 고르면 25.0)",
    "KorQuAD": "KorQuAD 질문 1,500개, 글자 단위 F1",
}


def tasks() -> Lines:
    """The recipe's encoder beside the usual initialization and random weights."""
    values = {(e["row"], e["column"]): e for e in study("korean")["measured"]}
    rows = []
    for name, shown in TASKS.items():
        encoders = ("korean", "korean, usual start, 15 % masked", "random weights")
        ours, usual, random = (values[encoder, name] for encoder in encoders)
        means = [spread(one["mean"], one["sd"]) for one in (ours, usual, random)]
        gain = difference_text(difference(random["values"], ours["values"])).replace(" to ", "~")
        rows.append((shown, *means, gain))
    head = ("과제", "이 인코더(%)", "일반 초기화·15% 마스킹(%)", "사전학습 없음(%)", "사전학습 효과(%p, 95% 신뢰구간)")
    return table(head, rows)


def embedder() -> Lines:
    """KorSTS with one encoder: its mean vectors, embedders trained from it, and a model of pairs."""
    found = result("benchmarks/embedding-scores-korsts")
    pair = next(e for e in study("korean")["measured"] if (e["row"], e["column"]) == ("korean", "KorSTS"))
    scores = {name: [run["spearman"] for run in runs] for name, runs in found["sides"].items()}
    trained = {name: spread(statistics.fmean(one), statistics.stdev(one)) for name, one in scores.items()}
    rows = [
        ("학습하기 전: 토큰 벡터의 평균", percent(found["before"])),
        ("임베더로 학습(`korsts-embedding`)", trained["ours"]),
        ("sentence-transformers로 학습", trained["sentence-transformers"]),
        ("문장 쌍을 함께 읽는 회귀 모델(`korsts`)", spread(pair["mean"], pair["sd"])),
    ]
    return table(("방법(인코더는 모두 같음)", "KorSTS 검증 데이터(dev), 스피어만 상관계수(%)"), rows)
