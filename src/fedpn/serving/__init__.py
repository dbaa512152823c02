"""Answers from a finished run, without a federation."""
