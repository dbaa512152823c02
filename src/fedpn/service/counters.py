"""What a service has done, in the text form that Prometheus reads."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

STEPS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counters:
    """Counts requests and answers; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.answers: Counter[tuple[str, str, str]] = Counter()
        self.batches, self.rows, self.seconds = 0, 0, 0.0
        self.buckets = [0] * (len(STEPS) + 1)
        self.took = 0.0

    def requested(self, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self.requests[route, status] += 1
            if route == "/v1/predict":
                self.took += seconds
                self.buckets[next((i for i, s in enumerate(STEPS) if seconds <= s), -1)] += 1

    def answered(self, client: str, told: Sequence[dict[str, Any]], seconds: float) -> None:
        with self._lock:
            self.batches, self.rows = self.batches + 1, self.rows + len(told)
            self.seconds += seconds
            self.answers.update((client, tree["source"], tree["outcome"]) for tree in told)

    def text(self, gauges: dict[str, dict[str, float]]) -> str:
        """All counts; `gauges` are numbers of now, by name and by client ("" for none)."""
        with self._lock:
            lines = ["# TYPE fedpn_requests_total counter"]
            for (route, status), count in sorted(self.requests.items()):
                lines.append(
                    f'fedpn_requests_total{{route="{quoted(route)}",status="{status}"}} {count}'
                )
            lines.append("# TYPE fedpn_answers_total counter")
            for (client, source, outcome), count in sorted(self.answers.items()):
                names = f'client="{quoted(client)}",source="{source}",outcome="{outcome}"'
                lines.append(f"fedpn_answers_total{{{names}}} {count}")
            lines += ["# TYPE fedpn_batches_total counter", f"fedpn_batches_total {self.batches}"]
            lines += ["# TYPE fedpn_rows_total counter", f"fedpn_rows_total {self.rows}"]
            lines.append("# TYPE fedpn_request_seconds histogram")
            total = 0
            for step, count in zip((*STEPS, "+Inf"), self.buckets, strict=True):
                total += count
                lines.append(f'fedpn_request_seconds_bucket{{le="{step}"}} {total}')
            lines += [f"fedpn_request_seconds_sum {self.took:.6f}"]
            lines += [f"fedpn_request_seconds_count {total}"]
        for name, values in gauges.items():
            lines.append(f"# TYPE {name} gauge")
            for client, value in values.items():
                who = f'{{client="{quoted(client)}"}}' if client else ""
                lines.append(f"{name}{who} {value:g}")
        return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    r"""
    >>> quoted('a"b')
    'a\\"b'
    """
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
