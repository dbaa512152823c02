"""The settings of routing."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedpn.core.bounds import OpenShare, Share, SmallShare, SomeShare


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
        "file.py:Class of your own; auto: bayes, where clients have a router or the head is in "
        "closed form",
    ] = "auto"
    outliers: Annotated[SomeShare, "the share of rows like its own that a client delegates"] = 0.1
    abstain: Annotated[SomeShare, "the share of those that nobody answers"] = 0.05
    strangers: Annotated[
        Share,
        "the share of known inputs that may be taken for strangers, so that real ones are noticed: "
        "nobody answers inputs like nothing that the federation has seen; 0: no such gate",
    ] = 0.02
    risk: Annotated[
        SmallShare,
        "a promise: of the inputs that are answered, at most this share is answered wrongly; "
        "0: none, and `abstain` says how many are refused",
    ] = 0.0
    sure: Annotated[OpenShare, "the chance with which that promise holds"] = 0.9
    sets: Annotated[
        SmallShare,
        "answers come with a set of classes that misses the true one at most this often; 0: none",
    ] = 0.0
    set_kind: Annotated[
        Literal["lac", "aps", "raps"], "of those: the smallest, or larger ones for hard inputs"
    ] = "lac"
    temperature: Annotated[
        Literal["auto", "off"], "auto: probabilities are scaled to be as sure as they are right"
    ] = "auto"
    operating_point: Annotated[
        Literal["likeliest", "balanced"],
        "what is answered: the likeliest class, or the one that is likelier than it is frequent, "
        "so that rare classes are found",
    ] = "likeliest"
    covariance: Annotated[Literal["full", "diagonal"], "of the router `gaussian`"] = "full"
    shrinkage: Annotated[Share, "of its covariances towards that of all classes"] = 0.1
