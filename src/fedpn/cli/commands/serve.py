"""fedpn serve and fedpn reviews: answers over HTTP, and what people said of those refused."""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.options import TRUST
from fedpn.core.errors import UserError
from fedpn.core.extras import needed

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN = "FEDPN_TOKEN"
DECISIONS, NOWHERE = "decisions.db", "none"
SHOWN = 20  # inputs that are left out and named


def add(commands: Any) -> None:
    text = "answer over HTTP, with a page that shows who answers and why"
    option = command(commands, "serve", _serve, text).add_argument
    option("runs", type=Path, nargs="+", metavar="RUN", help="finished runs, or exported folders")
    option(
        "--host",
        default="127.0.0.1",
        help=f"where it listens; beyond this machine ${TOKEN} must be set (default: 127.0.0.1)",
    )
    option("--port", type=int, default=8080, help="(default: 8080)")
    option(
        "--decisions",
        default=DECISIONS,
        help="an SQLite file or an SQLAlchemy URL, where decisions are kept; the word none: "
        f"nowhere (default: {DECISIONS} in the current folder)",
    )
    option(
        "--keep-inputs",
        action="store_true",
        help="keep inputs too, so that labelled ones can be trained on (fedpn reviews)",
    )
    option("--certificate", type=Path, help="TLS: a certificate, as PEM")
    option("--key", type=Path, help="TLS: its key, as PEM")
    option("--threads", type=int, default=0, help="of PyTorch (default: its own choice)")
    option("--trust", action="store_true", help=TRUST)
    text = "write inputs that people have labelled, for `fedpn calibrate` and the next training"
    option = command(commands, "reviews", _reviews, text).add_argument
    option("run", type=Path, metavar="RUN", help="the finished run, or exported folder")
    option("--client", help="whose; needed where there are several")
    option("--decisions", default=DECISIONS, help=f"where they are kept (default: {DECISIONS})")
    option("--out", type=Path, required=True, help="an .npz file")


def _serve(options: argparse.Namespace) -> int:
    with needed("serving"):
        from fedpn.service.app import make_app
        from fedpn.service.guard import check_token
        from fedpn.service.listen import make_server
    from fedpn.reporting.words import count
    from fedpn.service.library import Library

    token = os.environ.get(TOKEN, "")
    if options.host not in LOOPBACK and not token:
        raise UserError(
            f"--host {options.host} is seen by other machines: set ${TOKEN} to a long secret, "
            "which callers then send as `Authorization: Bearer …`"
        )
    if token and len(token) < 16:
        raise UserError(f"${TOKEN} has {len(token)} characters; use at least 16")
    try:
        check_token(token)
    except UserError as error:
        raise UserError(f"${TOKEN}: {error}") from None
    if bool(options.certificate) != bool(options.key):
        raise UserError("TLS needs both --certificate and --key")
    if options.keep_inputs and options.decisions == NOWHERE:
        raise UserError("--keep-inputs needs a place to keep them: leave --decisions none away")
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    _check_address(options.host, options.port)
    library = Library(options.runs, options.trust)
    app = make_app(library, token, _open(options.decisions), options.keep_inputs)
    scheme = "https" if options.certificate else "http"
    print(
        f"{count(len(library.clients), 'client')} at {scheme}://{options.host}:{options.port} "
        "(Ctrl-C ends it)",
        file=sys.stderr,
        flush=True,
    )
    server = make_server(
        app, options.host, options.port, certificate=options.certificate, key=options.key
    )
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    return 0


def _check_address(host: str, port: int) -> None:
    """Refuses an address that cannot be listened to, before models are read."""
    import socket

    if not 1 <= port <= 65535:
        raise UserError(f"--port is {port}, but must be from 1 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise UserError(f"{host}:{port} cannot be listened to: {error.strerror}") from None


def _open(where: str) -> Any:
    """The decisions at a URL, or in a file."""
    import sqlalchemy

    from fedpn.service.decisions import Decisions

    if where == NOWHERE:
        return None
    url = where if "://" in where else f"sqlite:///{where}"
    try:
        return Decisions(url)
    except (sqlalchemy.exc.SQLAlchemyError, ModuleNotFoundError) as error:
        raise UserError(f"--decisions {where} cannot be opened: {error}") from None


def _reviews(options: argparse.Namespace) -> None:
    from fedpn.core import store
    from fedpn.core.plain import plain
    from fedpn.reporting.words import count
    from fedpn.serving.bundle import open_bundle
    from fedpn.serving.inputs import columns_of

    if options.out.suffix != ".npz":
        raise UserError(f"--out {options.out}: the name must end in .npz")
    if "://" not in options.decisions and not Path(options.decisions).exists():
        raise UserError(f"there is no file {options.decisions}")
    bundle = open_bundle(options.run, options.client)
    decisions = _open(options.decisions).labelled(bundle.client)
    if not decisions:
        raise UserError(
            f"nobody has labelled an input of client {bundle.client} that was kept "
            "(fedpn serve --keep-inputs)"
        )
    rows, labels, remarks = _read_again(decisions, bundle)
    for words in remarks[:SHOWN]:
        print(plain(words), file=sys.stderr)
    if not rows:
        raise UserError(
            f"none of {len(decisions)} labelled inputs of client {bundle.client} is one for "
            f"version {bundle.version} of its models; {remarks[-1]}"
        )
    columns = columns_of(bundle.features, bundle.about.recipe)
    arrays: dict[str, Any] = {"images" if len(bundle.blueprint.shape) == 3 else "x": rows}
    arrays |= {"labels": labels} | ({"columns": columns} if columns else {})
    store.write_with(options.out, lambda place: _savez(place, arrays))
    missing = len(decisions) - len(rows)
    more = f" ({count(missing, 'input')} left out)" if missing else ""
    print(f"{len(rows)} labelled inputs of client {bundle.client}: {options.out}{more}")


def _read_again(decisions: Sequence[dict[str, Any]], bundle: Any) -> tuple[list[Any], Any, Any]:
    """Rows for these models, their labels, and what is to be said of them."""
    from fedpn.service.decode import read_again

    rows, labels, remarks = [], [], []
    others = sum(decision["version"] != bundle.version for decision in decisions)
    if others:
        remarks.append(f"{others} of these inputs are for other versions: they are read again")
    for decision in decisions:
        try:
            rows.append(read_again(decision, bundle))
            labels.append(decision["truth"])
        except UserError as error:
            remarks.append(f"left out: {error}")
    return rows, labels, remarks


def _savez(place: Path, arrays: dict[str, Any]) -> None:
    import numpy as np

    with place.open("wb") as file:  # by a name, NumPy would add an ending
        np.savez(file, **arrays)
