"""What the figures are checked against."""

from scipy import stats


def mann_whitney(known, unknown):
    """AUROC by ranks: the chance that an unknown row scores above a known one."""
    return stats.mannwhitneyu(unknown, known).statistic / (len(known) * len(unknown))
