"""What a worker says of its work, whatever it is asked: a message must not end it."""

import pytest
from flwr.app import ConfigRecord, RecordDict

from fedpn.core.store import read_json
from fedpn.flower.status import FILE
from fedpn.flower.worker.diary import Diary

ORDERS = {
    "none": {},
    "of other types": {"run": 7, "phase": 3.5, "round": "two", "config": [1, 2]},
    "of other trees": {"run": "", "config": "[1]", "round": -3},
    "not JSON": {"run": "a" * 5000, "config": "{" * 5000, "round": 2**40},
}


def told(order):
    return RecordDict({"order": ConfigRecord(order)}) if order else RecordDict()


@pytest.mark.parametrize("order", ORDERS.values(), ids=list(ORDERS))
@pytest.mark.parametrize("kind", ["query.alive", "query.introduce", "train", "train.sum"])
def test_the_first_message_may_be_any(order, kind, tmp_path, capsys):
    diary = Diary(tmp_path)
    diary.begin(kind, told(order), 12)
    diary.end(kind, told(order), 34, 0.5)
    diary.begin(kind, told(order), 12)
    diary.end(kind, None, 0, 0.5)
    status = read_json(tmp_path / FILE)
    assert (status["received"], status["sent"]) == (24, 34)
    assert (status["answered"], status["refused"]) == (1, 1)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_node_that_is_asked_whether_it_is_there_says_so(tmp_path, capsys):
    diary = Diary(tmp_path)
    diary.begin("query.alive", RecordDict(), 0)
    diary.end("query.alive", RecordDict(), 0, 0.0)
    assert capsys.readouterr().out == "fedpn: told that it is here, 0.0 s, 0 B sent\n"
