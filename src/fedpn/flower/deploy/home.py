"""Where Flower's own tools keep how SuperLinks are reached."""

import difflib
from pathlib import Path
from typing import NamedTuple

import tomli_w

from fedpn.core.errors import UserError
from fedpn.flower.deploy.environment import own_home
from fedpn.flower.deploy.health import is_here, split
from fedpn.flower.place import write_whole

NAME = "fedpn"


class Connection(NamedTuple):
    """A SuperLink as Flower's tools reach it."""

    address: str
    ca: Path | None
    plain: bool  # without TLS

    @property
    def here(self) -> bool:
        """Whether it is this machine's."""
        return is_here(split(self.address)[0])


def find(superlink: str, ca: Path | None) -> Connection:
    """A SuperLink by HOST:PORT, or by its name in Flower's configuration."""
    if ":" in superlink:
        host, _ = split(superlink)
        # Where nothing is said: a SuperLink of this machine is plain, any other has a
        # certificate that all machines trust.
        return Connection(superlink, ca and existing(ca), plain=ca is None and is_here(host))
    if ca is not None:
        raise UserError("--ca goes with HOST:PORT; a named SuperLink has its own certificate")
    return _named(superlink, (own_home() or Path.home() / ".flwr") / "config.toml")


def existing(ca: Path) -> Path:
    if not ca.is_file():
        raise UserError(f"no certificate file {ca}")
    return ca.resolve()


def _named(name: str, path: Path) -> Connection:
    if not path.is_file():
        raise UserError(
            f"--superlink {name}: there is no {path} that could name it; give HOST:PORT"
        )
    from fedpn.core.settings import read_toml

    table = read_toml(path).get("superlink", {})
    links = {key: link for key, link in table.items() if isinstance(link, dict)}
    if name not in links:
        near = difflib.get_close_matches(name, links, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(links) or 'none'}"
        raise UserError(f"--superlink {name!r} is not in {path}; {hint}")
    address, root = str(links[name].get("address", "")), links[name].get("root-certificates")
    if address.startswith(":"):
        raise UserError(f"--superlink {name}: {address} is Flower's simulator; use fedpn run")
    split(address)
    plain = bool(links[name].get("insecure", False))
    return Connection(address, existing(Path(root)) if root else None, plain)


def write_home(home: Path, connection: Connection) -> Path:
    """Writes a home for Flower's tools that knows this one SuperLink."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    link: dict[str, object] = {"address": connection.address}
    if connection.plain:
        link["insecure"] = True
    if connection.ca is not None:
        link["root-certificates"] = str(connection.ca)
    text = tomli_w.dumps({"superlink": {"default": NAME, NAME: link}})
    write_whole(home / "config.toml", text.encode(), 0o600)
    return home
