"""Which picture a sweep gets, and that each is a file that shows what it must."""

import re

import pytest

from fedpn.reporting.sweep_plots import Point, picture

MEASURE = "accuracy on tuning rows, Mix, %"


def _points(key, values):
    return [Point({key: value}, [80.0 - i, 82.0 - i]) for i, value in enumerate(values)]


def _texts(svg):
    return set(re.findall(r"<text[^>]*>([^<]*)</text>", svg))


@pytest.mark.parametrize("values", [(0.001, 0.01, 0.1), (0, 0.01, 0.1), (1, 2, 3), (2, 2.5)])
def test_one_number_is_a_line_whose_ticks_are_its_values(values):
    texts = _texts(picture(["fedpn.gamma"], _points("fedpn.gamma", values), MEASURE).svg())
    assert {f"{value:g}" for value in values} <= texts
    assert {"fedpn.gamma", MEASURE} <= texts and any("the ring is the best" in t for t in texts)


def test_decades_are_even_steps():
    svg = picture(["a"], _points("a", (0.001, 0.01, 0.1)), MEASURE).svg()
    places = {t: float(x) for x, t in re.findall(r'<text[^>]*x="([\d.]+)"[^>]*>([\d.]+)<', svg)}
    one, two, three = (places[value] for value in ("0.001", "0.01", "0.1"))
    assert two - one == pytest.approx(three - two, rel=0.05)


def test_two_settings_are_a_map():
    points = [
        Point({"algorithm": name, "method.lr": lr}, [90.0 - 10 * i, 80.0 - 10 * i])
        for i, (name, lr) in enumerate([("b", 0.1), ("a", 0.1), ("a", 0.01)])
    ]
    texts = _texts(picture(["algorithm", "method.lr"], points, MEASURE).svg())
    assert {"a", "b", "0.01", "0.1", "85.0", "75.0", "65.0", "–"} <= texts
    assert "the frame is the best; means over 2 seeds" in texts


def test_others_are_bars(tmp_path):
    drawn = picture(["algorithm"], _points("algorithm", ["fedpn", "$x$", "<b>"]), MEASURE)
    texts = _texts(drawn.svg())
    assert {"fedpn", "$x$", "&lt;b&gt;", "81.0 ± 1.0"} <= texts
    drawn.save(tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 1000


def test_of_very_many_bars_the_best_are_shown():
    points = [Point({"a": f"name {i}", "b": 1, "c": 2}, [90.0 - i]) for i in range(40)]
    texts = _texts(picture(["a", "b", "c"], points, MEASURE).svg())
    assert any("the first 30 of 40" in text for text in texts)
    assert not any("name 31" in text for text in texts)
