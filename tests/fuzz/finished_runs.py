"""Two small finished runs, of pictures and of a table."""

import numpy as np

import fedpn


def run_of_pictures(place):
    """Two clients with digits, a head in closed form, Bayes' rule and a gate."""
    options = {"algorithm": "analytic", "clients": 2, "head__filters": 8}
    fedpn.run(place / "run", dataset="digits", **options)
    return place / "run"


def run_of_a_table(place):
    """Two clients with rows of two columns."""
    x = np.random.default_rng(0).normal(size=(200, 2)) + np.arange(200)[:, None] % 2
    rows = [
        f"{a:.3f},{b:.3f},{('well', 'ill')[i % 2]},{('Oslo', 'Bergen')[i // 100]}"
        for i, (a, b) in enumerate(x)
    ]
    (place / "t.csv").write_text("\n".join(["age,pulse,label,client", *rows]), encoding="utf-8")
    options = {"algorithm": "analytic", "head__fourier": 20}
    fedpn.run(place / "run", dataset=str(place / "t.csv"), **options)
    return place / "run"
