"""scikit-learn's own checks of the estimators, and what they are for: pipelines, searches, pickles."""

import pickle

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import bertworks
from bertworks.apps.estimators import EncoderClassifier, EncoderVectorizer
from bertworks.files import InputError
from support.tiny_task import tiny_folder, tiny_table

NO_COUNT, TYPES = "a text has no number of features", "texts are refused by their type, and the message names a cell"
FAILURES = {  # of the checks of scikit-learn
    **dict.fromkeys(("check_n_features_in", "check_n_features_in_after_fitting"), NO_COUNT),
    **dict.fromkeys(("check_complex_data", "check_dtype_object", "check_estimators_nan_inf"), TYPES),
    "check_fit2d_predict1d": "one dimension is what a list of texts has",
}
OF_VECTORS = {"check_transformer_general": NO_COUNT}
OF_CLASSES = {"check_classifiers_train": "numbers written as letters are not learned in two updates"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimators")
    tiny_folder(folder / "model")
    return folder


@pytest.fixture(scope="module")
def table(place):
    return pandas.read_csv(tiny_table(place / "a.csv", 48, 3, longest=4))


def as_texts(X):
    """Rows of numbers as texts that differ as the numbers do, in letters that the tiny vocabulary has."""
    given, X = X, np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "iufb" or not np.isfinite(X).all() or not X.size:
        return given
    return [" ".join(chr(97 + int(abs(cell) * 7) % 26) for cell in row) for row in X.tolist()]


class OfNumbers:
    """Renders tables of numbers as text, for the checks that bring such tables."""

    def fit(self, X, y=None):
        return super().fit(as_texts(X), y)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = False, True
        return tags


class NumbersToVectors(OfNumbers, EncoderVectorizer):
    def transform(self, X):
        return super().transform(as_texts(X))


class NumbersToClasses(OfNumbers, EncoderClassifier):
    def predict_proba(self, X):
        return super().predict_proba(as_texts(X))


@pytest.mark.heavy
@pytest.mark.parametrize(("kind", "failures"), [(NumbersToVectors, OF_VECTORS), (NumbersToClasses, OF_CLASSES)])
def test_checks_of_scikit_learn(kind, failures, place):
    more = {"fields": {"loop": {"steps": 2}}} if kind is NumbersToClasses else {}
    expected = FAILURES | failures
    made = kind(str(place / "model"), **more)
    found = check_estimator(made, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = {one["check_name"]: repr(one["exception"])[:300] for one in found if one["status"] == "failed"}
    assert failed == {}, "\n".join(f"{name}: {why}" for name, why in failed.items())
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == {*expected}
    assert sum(one["status"] == "passed" for one in found) > 30


def test_vectors_are_those_of_features_and_survive_a_pickle(place, table):
    vectorizer = EncoderVectorizer(place / "model", layers="-1,-2").fit(table.text)
    vectors = vectorizer.transform(table.text)
    assert np.array_equal(vectors, bertworks.features(place / "model", table.text, layers="-1,-2", pool="mean"))
    assert vectorizer.get_feature_names_out()[-1] == "encodervectorizer63" and vectors.shape == (48, 64)
    again = pickle.loads(pickle.dumps(vectorizer))
    assert np.array_equal(again.transform([*table.text]), vectors) and len(pickle.dumps(vectorizer)) < 1000
    frame = ColumnTransformer([("v", EncoderVectorizer(place / "model"), "text")]).fit_transform(table)
    assert frame.shape == (48, 32)


def test_a_pipeline_is_searched(place, table):
    pipeline = make_pipeline(EncoderVectorizer(place / "model"), LogisticRegression(max_iter=1000))
    search = GridSearchCV(pipeline, {"encodervectorizer__pool": ["mean", "cls"]}, cv=2).fit(table.text, table.label)
    assert search.best_score_ > 0.8 and {*search.predict(["good film"])} <= {"good", "bad"}


def test_a_classifier_learns_and_survives_a_pickle(place, table):
    classifier = EncoderClassifier(place / "model", epochs=12, lr=3e-3, batch_size=8, fields={"optim": {"warmup": 0.1}})
    classifier.fit(table.text, table.label)
    assert classifier.score(table.text, table.label) > 0.9 and [*classifier.classes_] == ["bad", "good"]
    chances = classifier.predict_proba(table.text)
    assert chances.shape == (48, 2) and np.allclose(chances.sum(1), 1, atol=1e-5)
    again = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(again.predict_proba([*table.text]), chances)
    numbered = clone(classifier).set_params(epochs=1).fit(table.text, np.where(table.label == "good", 7, -3))
    assert {*numbered.predict(table.text)} <= {7, -3}


def test_a_classifier_is_searched_and_takes_pairs(place, table):
    pairs = table[["text", "label"]].set_axis(["a", "b"], axis=1)
    search = GridSearchCV(EncoderClassifier(place / "model", epochs=1), {"lr": [1e-4, 1e-3]}, cv=2)
    search.fit(pairs, table.label)
    assert search.best_params_["lr"] in (1e-4, 1e-3)
    assert search.best_estimator_.predict(pairs.to_numpy()).shape == (48,)
    with pytest.raises(InputError, match="the model was fine-tuned on pairs"):
        search.predict(table.text)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("a text", "at least 1 dimension"),
        ([], "Found array with 0 sample"),
        ([1, 2], r"^X\[0\] is a int \(1\); expected a text"),
        ([["a", "b", "c"]], "^X has rows of 3 texts; expected one text each, or two each"),
        (["a", ("b", "c")], "^X has rows of 1 and 2 texts"),
        (np.zeros((2, 2, 2)), "Found array with dim 3"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(place, X, message):
    for made in (EncoderVectorizer(place / "model"), EncoderClassifier(place / "model")):
        with pytest.raises((ValueError, TypeError), match=message):
            made.fit(X, ["x"] * len(X))


def test_errors_of_models_and_classes(place):
    with pytest.raises(InputError, match=r"^nowhere: no such folder"):
        EncoderVectorizer("nowhere").fit(["a"])
    with pytest.raises(ValueError, match="only one class, 'x'"):
        EncoderClassifier(place / "model").fit(["a", "b"], ["x", "x"])
    with pytest.raises(InputError, match="nowhere: no such folder"):
        EncoderClassifier("nowhere").fit(["a", "b"], ["x", "y"])
