"""The whole examination: what was named is looked at, and the machine always."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.flower.deploy import health
from fedpn.flower.deploy.home import Connection
from fedpn.flower.doctor.finding import Finding, fail, ok
from fedpn.flower.doctor.machine import check_versions
from fedpn.flower.doctor.papers import check_papers
from fedpn.flower.doctor.places import check_out, check_state
from fedpn.flower.doctor.reach import check_link


@dataclass(frozen=True)
class Patient:
    """What is to be looked at; None is not."""

    certs: Path | None = None
    link: Connection | None = None
    state: Path | None = None
    data: Path | None = None
    out: Path | None = None


def examine(patient: Patient) -> Iterator[Finding]:
    """One finding after the other, as they are made."""
    now = time.time()
    yield from check_versions()
    if patient.certs is not None:
        host = health.split(patient.link.address)[0] if patient.link else None
        yield from check_papers(patient.certs, host)
    if patient.link is not None:
        yield from check_link(patient.link)
    if patient.state is not None:
        yield from check_state(patient.state, now)
    if patient.out is not None:
        yield from check_out(patient.out, now)
    if patient.data is not None:
        yield _check_data(patient.data)


def _check_data(path: Path) -> Finding:
    """A node's own rows, as a run would read them where its config says nothing of columns."""
    from fedpn.data.sources.check import check

    try:
        return ok("data", "; ".join(check(path)[:2]))
    except UserError as error:
        return fail("data", str(error), f"fedpn data check {path} tells more, and takes --label")
