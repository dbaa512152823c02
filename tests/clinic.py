"""A table as hospitals have them: identifiers, gaps, commas, dates, wards, remarks, four sites."""

import csv

import numpy as np

SITES = ["St. Anna", "Charité", "Nordsee", "Insel"]
WARDS = ["Chirurgie", "Innere", "Intensiv", "Kardiologie", "Neurologie"]
NUMBERS, CATEGORIES = ["Alter", "CRP", "Blutdruck", "Dosis", "Kosten"], ["Station", "Raucher"]


def german(number, digits=1):
    """1.234,5"""
    return f"{number:,.{digits}f}".translate(str.maketrans(",.", ".,"))


def rows(count=5000, seed=0):
    """Patients, one site with 29 of them; a diagnosis follows from most columns."""
    rng = np.random.default_rng(seed)
    site = rng.choice(SITES[:3], count, p=[0.4, 0.35, 0.25]).astype(object)
    site[rng.choice(count, min(29, count // 4), replace=False)] = SITES[3]
    age = rng.normal(62, 14, count).clip(18, 99)
    crp, cost = np.exp(rng.normal(2.5, 1.1, count)), rng.gamma(2, 1500, count)
    pressure, dose = rng.normal(130, 18, count), rng.choice([1, 2, 5, 10], count)
    ward = rng.choice(WARDS, count, p=[0.3, 0.35, 0.1, 0.15, 0.1])
    smokes, day = rng.random(count) < 0.3, rng.integers(0, 900, count)
    gone = rng.random((count, 5)) < [0.04, 0.15, 0.1, 0.03, 0.05]
    little = rng.random(count) < 0.02
    sick = 0.05 * (age - 62) + 0.9 * (np.log(crp) - 2.5) + 0.02 * (pressure - 130) + 0.8 * smokes
    sick += 1.2 * (ward == "Intensiv") - 0.6 * (ward == "Chirurgie") + 0.5 * gone[:, 1]
    sick = rng.random(count) < 1 / (1 + np.exp(1.2 - sick + 0.001 * (day - 450)))
    dates = np.datetime64("2022-01-01") + day
    return [
        {
            "Patient": f"P{100000 + i}",
            "Nr": i + 1,
            "Alter": "k.A." if gone[i, 0] else f"{age[i]:.0f}",
            "CRP": "" if gone[i, 1] else "<5" if little[i] else german(crp[i]),
            "Blutdruck": "n/a" if gone[i, 2] else german(pressure[i]),
            "Station": "" if gone[i, 3] else ward[i],
            "Raucher": "" if gone[i, 4] else ("nein", "ja")[int(smokes[i])],
            "Aufnahme": dates[i].item().strftime("%d.%m.%Y"),
            "Dosis": int(dose[i]),
            "Kosten": german(cost[i], 2),
            "Land": "DE",
            "Bemerkung": "" if i % 3 else f"siehe Akte {i}",
            "Klinik": site[i],
            "Diagnose": ("gesund", "krank")[int(sick[i])],
        }
        for i in range(count)
    ]


def write(path, table, letters="latin-1"):
    """As Excel writes it in Germany."""
    with path.open("w", newline="", encoding=letters) as file:
        writer = csv.DictWriter(file, list(table[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(table)
