"""Prometheus metrics of one server, under the names of text-embeddings-inference and some of our own."""

from collections.abc import Mapping
from typing import Any

from ...workers import openmp

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
TEI_COUNTERS = ("te_request_count", "te_request_success", "te_request_failure")
LABELS = ("method", "model", "route")  # of an answered request; method: "single" or "batch"


def route_of(scope: Mapping[str, Any]) -> str:
    """The route of a request as it is declared, such as /models/{name}; "" for an unknown one. Never a text."""
    return getattr(scope.get("route"), "path", "")


class Metrics:
    """Counters and histograms of a server; each server has its own."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Any:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Any:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        self.count = counter("te_request_count", "Requests to compute something.", *LABELS)
        self.success = counter("te_request_success", "Requests that were answered.", *LABELS)
        self.failure = counter("te_request_failure", "Requests that were refused or failed.", "err", "model", "route")
        self.duration = histogram("te_request_duration", "Seconds of an answered request.", SECONDS, "model", "route")
        self.tokenization = histogram("te_request_tokenization_duration", "Seconds of tokenizing.", SECONDS)
        self.queue = histogram("te_request_queue_duration", "Seconds in the queue.", SECONDS)
        self.inference = histogram("te_request_inference_duration", "Seconds of its forward passes.", SECONDS)
        self.queue_size = Gauge("te_queue_size", "Requests in the queue.", registry=registry)
        self.batch_size = histogram("te_batch_next_size", "Requests in a batch.", SIZES)
        self.batch_tokens = histogram("te_batch_next_tokens", "Tokens in a batch.", TOKENS)
        self.truncated_inputs = counter("bertworks_truncated_inputs", "Inputs that were cut.")
        self.truncated_tokens = counter("bertworks_truncated_tokens", "Tokens that were cut away.")
        self.tokens = counter("bertworks_tokens", "Tokens that were computed.")
        others = Gauge("bertworks_cores_used_by_others", "Cores that other programs use.", registry=registry)
        others.set_function(lambda: watcher.used if (watcher := openmp.watch()) else 0.0)

    def batch(self, jobs: int, tokens: int) -> None:
        """A batch was computed."""
        self.batch_size.observe(jobs)
        self.batch_tokens.observe(tokens)

    def text(self) -> bytes:
        """Everything in Prometheus's text format. TEI's counters have no `_total` at the end of their names."""
        from prometheus_client import generate_latest

        lines = generate_latest(self.registry).split(b"\n")
        text = b"\n".join(line for line in lines if b"_created" not in line)
        for name in TEI_COUNTERS:
            text = text.replace(f"{name}_total".encode(), name.encode())
        return text
