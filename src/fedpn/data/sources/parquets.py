"""Parquet files -> columns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedpn.core.errors import UserError
from fedpn.core.extras import needed
from fedpn.core.plain import composed, plain
from fedpn.data.sources.csvs import LARGEST, Table, check_names
from fedpn.data.sources.guard import fits, plain_file, reason, short


def read_parquet(path: Path) -> Table:
    with needed(f"reading {path}"):
        import pyarrow
        from pyarrow import parquet
    plain_file(path, LARGEST)
    try:
        with parquet.ParquetFile(path) as file:
            _check_parquet(path, file, pyarrow.types.is_nested)
        texts = [
            field.name
            for field in file.schema_arrow
            if pyarrow.types.is_string(field.type) or pyarrow.types.is_large_string(field.type)
        ]
        # Text that repeats is held once: a few bytes may stand for very many.
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            content = file.read()
        columns = {composed(name): _values(content[name]) for name in content.column_names}
    except UserError:
        raise
    except Exception as error:  # readers of damaged files fail in many ways
        raise UserError(
            f"{path} is not a Parquet table ({reason(error)}); save it again"
        ) from error
    return Table(columns, lambda row: f"row {row} of {path}")


def _check_parquet(path: Path, file: Any, is_nested: Callable[[Any], bool]) -> None:
    """Refuses by the head what is no table or would not fit."""
    head, schema = file.metadata, file.schema_arrow
    check_names(path, [composed(name) for name in schema.names])
    if head.num_rows == 0:
        raise UserError(f"{path} has no rows; add some")
    packed = sum(head.row_group(i).total_byte_size for i in range(head.num_row_groups))
    claimed = max(packed, 8 * head.num_rows * len(schema.names))
    fits(claimed, f"{head.num_rows} rows of {path}", "take fewer rows or columns")
    nested = next((field for field in schema if is_nested(field.type)), None)
    if nested is not None:
        raise UserError(
            f"the column {short(nested.name)!r} of {path} holds {plain(short(str(nested.type)))}; "
            "keep one number or name in each cell"
        )


def _values(column: Any) -> Sequence[Any]:
    if not hasattr(column.type, "index_type"):
        values: Sequence[Any] = column.to_numpy()
        return values
    values = []
    for chunk in column.chunks:
        names = [*chunk.dictionary.to_pylist(), None]
        values += [names[i] for i in chunk.indices.fill_null(-1).to_pylist()]
    return values
