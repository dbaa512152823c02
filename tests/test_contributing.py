"""The algorithm that CONTRIBUTING.md shows, taken from that very text, registered and run."""

import json
import re
from pathlib import Path

from fedpn.cli.main import main

PAGE = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()


def test_the_example_is_complete_and_runs(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    body = code[code.index("@dataclass") :]
    assert len(body.strip().splitlines()) <= 30
    (tmp_path / "homebody.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    options = ["--rounds", "3", "--clients", "4", "--set", "train.steps=3"]
    out = tmp_path / "run"
    chosen = ["--algorithm", "homebody:Homebody", "--set", "homebody.tether=1"]
    assert main(["run", *options, *chosen, "--out", str(out)]) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["algorithm"] == "homebody:Homebody"
    assert list(metrics["accuracy"]) == ["personal"]
    loose = tmp_path / "loose"
    chosen = ["--algorithm", "homebody:Homebody", "--set", "homebody.tether=0"]
    assert main(["run", *options, *chosen, "--out", str(loose)]) == 0
    tied, free = ((p / "clients.safetensors").read_bytes() for p in (out, loose))
    assert tied != free
