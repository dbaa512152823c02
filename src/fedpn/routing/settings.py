"""The settings of routing."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedpn.core.bounds import Share, SomeShare


@dataclass(frozen=True)
class RoutingSettings:
    """When a client's model delegates and when it abstains."""

    router: Annotated[
        str,
        "by which score a client delegates: auto (log_density for posterior networks, none for "
        "others), none, dirichlet_entropy, mutual_information, msp, energy, softmax_entropy, "
        "gaussian, foreign, …, or file.py:Class of your own",
    ] = "auto"
    rule: Annotated[
        str,
        "whose answers count: the paper's switch (quantiles), Bayes' rule (bayes), or "
        "file.py:Class of your own; auto: bayes where the head is in closed form",
    ] = "auto"
    outliers: Annotated[SomeShare, "the share of rows like its own that a client delegates"] = 0.1
    abstain: Annotated[SomeShare, "the share of those that nobody answers"] = 0.05
    strangers: Annotated[
        Share,
        "the share of known inputs that may be taken for strangers, so that real ones are noticed: "
        "nobody answers inputs like nothing that the federation has seen; 0: no such gate",
    ] = 0.0
    covariance: Annotated[Literal["full", "diagonal"], "of the router `gaussian`"] = "full"
    shrinkage: Annotated[Share, "of its covariances towards that of all classes"] = 0.1
