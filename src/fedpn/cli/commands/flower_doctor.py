"""fedpn flower doctor: what may be wrong with this machine's part of a federation."""

import argparse
import json
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.flower_run import told
from fedpn.core.plain import plain


def add(family: Any) -> None:
    text = "look for what is wrong with this machine's part of a federation, and tell the way out"
    option = command(family, "doctor", told(_doctor), text).add_argument
    option("--certs", type=Path, metavar="DIR", help="of fedpn flower certs, or a machine's part")
    option("--superlink", metavar="HOST:PORT", help="as nodes, or runs, reach it")
    option("--state", type=Path, metavar="DIR", help="what a node keeps")
    option("--data", type=Path, metavar="PATH", help="a node's own data")
    option("--out", type=Path, metavar="DIR", help="a run directory, on the SuperLink's machine")
    option("--json", action="store_true", help="for programs")


def _doctor(options: argparse.Namespace) -> int:
    from fedpn.flower.doctor.examine import Patient, examine
    from fedpn.flower.doctor.finding import FAIL, OK

    link = _connection(options) if options.superlink else None
    patient = Patient(options.certs, link, options.state, options.data, options.out)
    worst, findings = 0, []
    for finding in examine(patient):
        worst |= finding.level == FAIL
        findings.append(finding._asdict())
        if not options.json:
            print(f"{finding.level:<5} {finding.what:<12} {plain(finding.said)}", flush=True)
            if finding.level != OK:
                print(f"{'':<18} → {plain(finding.way)}", flush=True)
    if options.json:
        print(json.dumps(findings, ensure_ascii=False))
    return int(worst)


def _connection(options: argparse.Namespace) -> Any:
    """The SuperLink, by the authority of --certs where they have one."""
    from fedpn.flower.deploy import home

    beside = options.certs and options.certs / "ca.crt"
    return home.find(options.superlink, beside if beside and beside.is_file() else None)
