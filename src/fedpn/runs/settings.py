"""The settings of data and network."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedpn.core.bounds import Bounds, Count, Depth, Natural, Positive, SmallShare, Width
from fedpn.core.plain import composed
from fedpn.data.sources.styles import Ways
from fedpn.data.sources.table import Wanted


@dataclass(frozen=True)
class DataSettings:
    """How rows are read and dealt."""

    partition: Annotated[
        str,
        "classes, dirichlet, extended, iid, natural, quantity, shards, or file.py:name, called as "
        "name(labels, clients, seed); auto: natural where the data name their clients, else "
        "classes, of two classes dirichlet",
    ] = "auto"
    cards: Annotated[Count, "classes per client, under `classes`, `extended` and `shards`"] = 3
    beta: Annotated[Positive, "concentration, under `dirichlet`, `extended` and `quantity`"] = 0.3
    shift: Annotated[
        Literal["none", "pictures", "rotate", "invert", "noise", "blur"],
        "pictures: clients' images are by turns as they are, inverted, turned, dim and noisy; the "
        "others: one of these ways, by turns or from client to client the more",
    ] = "none"
    label: Annotated[str, 'of a table, the column; "label" where nothing is said'] = ""
    client: Annotated[str, 'of a table, the column of owners; "client" where there is one'] = ""
    group: Annotated[
        str,
        "of a table, the column of what rows belong to, such as a patient: groups are dealt whole, "
        "and count once in thresholds and promises; none: exact copies of a row are a group",
    ] = ""
    copies: Annotated[
        Literal["one", "each"],
        "whether equal rows are one case or each its own; of one, clients also look whether others "
        "have the same rows before they promise anything, by sums of keyed hashes",
    ] = "one"
    features: Annotated[
        tuple[str, ...], "of a table, the columns, in this order; none: all others"
    ] = ()
    ignore: Annotated[tuple[str, ...], "of a table, columns to leave out"] = ()
    categories: Annotated[
        tuple[str, ...], "of a table, columns whose numbers are names, such as codes"
    ] = ()
    decimal: Annotated[
        Literal["auto", "point", "comma"],
        "of a table, what parts decimals; auto: what each column shows, else the point",
    ] = "auto"
    dates: Annotated[
        Literal["auto", "day first", "month first"],
        "of a table, how 3/4/2025 is read; auto: what each column shows, else the day first",
    ] = "auto"
    image_size: Annotated[int, Bounds(low=0, high=4096), "of own images; 0: that of the data"] = 0
    limit: Annotated[Natural, "rows to take, of each class as many as its share is; 0: all"] = 0
    unseen: Annotated[
        SmallShare, "the share of clients that never train, and are judged by how they adapt"
    ] = 0.0
    show: Annotated[
        Literal["auto", "yes", "no"],
        "whether reports hold some inputs as pictures; auto: of public sets, not of your own",
    ] = "auto"
    without: Annotated[tuple[str, ...], "clients that take no part, as if never dealt to"] = ()
    classes: Annotated[tuple[str, ...], "by number; none: those of the data, in their order"] = ()

    def __post_init__(self) -> None:
        """Names have one form, as those of data have."""
        for name in ("features", "ignore", "categories", "without", "classes"):
            names = tuple(composed(value) for value in getattr(self, name))
            object.__setattr__(self, name, names)
        for name in ("label", "client", "group"):
            object.__setattr__(self, name, composed(getattr(self, name)))

    def wanted(self) -> Wanted:
        """What is asked of a table."""
        ways = Ways(self.decimal, self.dates, self.categories)
        label, client, group = self.label or None, self.client or None, self.group or None
        return Wanted(label, client, self.features, self.ignore, ways, group)


@dataclass(frozen=True)
class ModelSettings:
    """The network."""

    encoder: Annotated[
        str,
        "lenet5, resnet18, mlp, or file.py:Net, called as Net(shape, dim); auto: LeNet-5 for "
        "images, an MLP for tables",
    ] = "auto"
    dim: Annotated[Width, "of embeddings"] = 16
    density: Annotated[
        str,
        "of a posterior network, one a class; or file.py:Own, made by Own(dim, classes, layers)",
    ] = "radial"
    layers: Annotated[Depth, "of each density"] = 30
    norm: Annotated[
        Literal["auto", "none", "batch", "group"],
        "what normalises the encoder's layers; auto: batch for ResNets, none for others",
    ] = "auto"
    pretrained: Annotated[str, "weights of the encoder, a safetensors file"] = ""
    frozen: Annotated[bool, "whether the encoder stays as it is, pretrained or random"] = False
