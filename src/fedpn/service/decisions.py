"""Decisions are kept: what was answered, what was not and waits for a person, what drifts."""

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

Row = dict[str, Any]
META = sa.MetaData()
DECISIONS = sa.Table(
    "decisions",
    META,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("client", sa.String, nullable=False),
    sa.Column("version", sa.String),  # of the client's models; none before there were versions
    sa.Column("outcome", sa.String, nullable=False),
    sa.Column("source", sa.String, nullable=False),
    sa.Column("label", sa.String),
    sa.Column("guess", sa.String, nullable=False),
    sa.Column("confidence", sa.Float, nullable=False),
    sa.Column("epistemic", sa.Float, nullable=False),
    sa.Column("aleatoric", sa.Float, nullable=False),
    sa.Column("total", sa.Float, nullable=False),
    sa.Column("own_share", sa.Float),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("input", sa.LargeBinary),  # only where the service was told to keep inputs
    sa.Column("truth", sa.String),  # a person's label
    sa.Column("reviewed", sa.Float),
    sa.Index("by_client", "client", "id"),
    sa.Index("by_version", "client", "version", "id"),
    sa.Index("to_review", "source", "truth", "id"),
)
WATCHES = sa.Table(
    "watches",  # what `drift` has seen of a version's inputs
    META,
    sa.Column("client", sa.String, primary_key=True),
    sa.Column("version", sa.String, primary_key=True),
    sa.Column("state", sa.JSON, nullable=False),
)
BUSY = 1.0  # seconds to wait for another program that writes
UNREACHABLE = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError)
SHOWN = [column for column in DECISIONS.c if column.name != "input"]


class Decisions:
    """A table of decisions; by default SQLite, with a write-ahead log."""

    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(url)
        if self.engine.dialect.name == "sqlite":
            sa.event.listen(self.engine, "connect", _use_wal)
        META.create_all(self.engine)
        _add_what_is_new(self.engine)

    def keep(self, rows: Sequence[Row]) -> list[int]:
        """Writes decisions; once this returns they outlive the process. Returns their numbers."""
        if not rows:
            return []
        with self.engine.begin() as connection:
            made = connection.execute(
                sa.insert(DECISIONS).returning(DECISIONS.c.id, sort_by_parameter_order=True),
                list(rows),
            )
            return [int(row.id) for row in made]

    def last(self, client: str | None, count: int) -> list[Row]:
        """The last decisions, the newest first."""
        query = sa.select(*SHOWN).order_by(DECISIONS.c.id.desc()).limit(count)
        return self._read(query if client is None else query.where(DECISIONS.c.client == client))

    def to_review(self, client: str | None, count: int) -> list[Row]:
        """What nobody answered and no person has labelled yet, the oldest first."""
        query = sa.select(*SHOWN).where(DECISIONS.c.source == "nobody")
        query = query.where(DECISIONS.c.truth.is_(None)).order_by(DECISIONS.c.id).limit(count)
        return self._read(query if client is None else query.where(DECISIONS.c.client == client))

    def find(self, number: int) -> Row | None:
        found = self._read(sa.select(*DECISIONS.c).where(DECISIONS.c.id == number))
        return found[0] if found else None

    def review(self, number: int, truth: str, instead: str | None = None) -> bool:
        """Keep a person's label in place of another, or of none; False where there is another."""
        change = sa.update(DECISIONS).where(DECISIONS.c.id == number)
        change = change.where(DECISIONS.c.truth.is_not_distinct_from(instead))
        with self.engine.begin() as connection:
            done = connection.execute(change.values(truth=truth, reviewed=time.time()))
            return done.rowcount == 1

    def labelled(self, client: str) -> list[Row]:
        """Inputs with a person's label, where inputs are kept."""
        c = DECISIONS.c
        query = sa.select(c.id, c.version, c.input, c.truth).where(
            DECISIONS.c.client == client,
            DECISIONS.c.truth.is_not(None),
            DECISIONS.c.input.is_not(None),
        )
        return self._read(query.order_by(DECISIONS.c.id))

    def recent(self, client: str, version: str, count: int) -> list[Row]:
        """Outcomes and shares of the last decisions of a version, the oldest first."""
        c = DECISIONS.c
        query = sa.select(c.time, c.outcome, c.epistemic, c.own_share)
        query = query.where(c.client == client, c.version == version)
        return self._read(query.order_by(c.id.desc()).limit(count))[::-1]

    def read_watch(self, client: str, version: str) -> Row | None:
        """What was seen of a version's inputs before."""
        c = WATCHES.c
        found = self._read(sa.select(c.state).where(c.client == client, c.version == version))
        return found[0]["state"] if found else None

    def keep_watch(self, client: str, version: str, state: Row) -> None:
        c = WATCHES.c
        with self.engine.begin() as connection:
            mine = (c.client == client) & (c.version == version)
            changed = connection.execute(sa.update(WATCHES).where(mine).values(state=state))
            if not changed.rowcount:
                line = {"client": client, "version": version, "state": state}
                connection.execute(sa.insert(WATCHES).values(line))

    def _read(self, query: Any) -> list[Row]:
        with self.engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def close(self) -> None:
        self.engine.dispose()


def _add_what_is_new(engine: sa.Engine) -> None:
    """Add the columns and indices that a table of an older fedpn lacks."""
    there = {column["name"] for column in sa.inspect(engine).get_columns(DECISIONS.name)}
    quoted = engine.dialect.identifier_preparer.quote
    with engine.begin() as connection:
        for column in DECISIONS.c:
            if column.name not in there:
                kind = column.type.compile(engine.dialect)
                words = f"ALTER TABLE {DECISIONS.name} ADD COLUMN {quoted(column.name)} {kind}"
                connection.execute(sa.text(words))
        for index in DECISIONS.indexes:
            index.create(connection, checkfirst=True)


def _use_wal(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={1000 * BUSY:.0f}")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")  # outlives a kill; a power cut may cost the last
    cursor.close()
