"""Status files of a federation: read, or told as unreadable; what comes of them is in form."""

import json
import time

from hypothesis import given
from hypothesis import strategies as st
from mutate import mutated
from prometheus_client.parser import text_string_to_metric_families
from trial import fuzz

import statuses
from fedpn.flower.watch.metrics import metrics
from fedpn.flower.watch.snapshot import as_tree
from fedpn.flower.watch.status import look
from fedpn.flower.watch.table import show

RUN, NODE, LINK = statuses.finished(), statuses.node(), statuses.link()
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(), max_size=8),
    st.lists(st.none(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
)


def looked_at(place):
    """Whatever was found can be told in every form."""
    items, now = look([place]), time.time()
    assert len(items) == 1
    show(items, now).encode()
    json.dumps(as_tree(items, now), allow_nan=False).encode()
    families = text_string_to_metric_families(metrics(items, now).encode().decode())
    samples = [(s.name, *sorted(s.labels.items())) for f in families for s in f.samples]
    assert len(samples) == len(set(samples))


@fuzz(examples=80)
@given(
    status=st.sampled_from([RUN, NODE]).flatmap(lambda tree: mutated(json.dumps(tree).encode())),
    link=mutated(json.dumps(LINK).encode()),
)
def test_status_files_with_damage(status, link, tmp_path):
    (tmp_path / "status.json").write_bytes(status)
    (tmp_path / "link.json").write_bytes(link)
    looked_at(tmp_path)


@fuzz(examples=120)
@given(tree=st.sampled_from([RUN, NODE]), data=st.data())
def test_status_files_with_odd_values(tree, data, tmp_path):
    changed = json.loads(json.dumps(tree))
    where = data.draw(st.sampled_from([changed, *changed.get("nodes", ())]))
    where[data.draw(st.sampled_from(sorted(where)))] = data.draw(VALUES)
    statuses.write(tmp_path, changed)
    looked_at(tmp_path)
