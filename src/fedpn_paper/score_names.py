"""What results call a score: the Dirichlet's entropy is plain `entropy` there, as in the paper."""

SHORT = {"dirichlet_entropy": "entropy"}
LONG = {short: long for long, short in SHORT.items()}


def short(router: str) -> str:
    """The name in results of the score by which a router delegates.

    >>> short("dirichlet_entropy"), short("gaussian")
    ('entropy', 'gaussian')
    """
    return SHORT.get(router, router)


def router_named(score: str) -> str:
    """The router whose score results call so.

    >>> router_named("entropy"), router_named("log_density")
    ('dirichlet_entropy', 'log_density')
    """
    return LONG.get(score, score)
