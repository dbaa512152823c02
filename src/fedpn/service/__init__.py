"""Answers over HTTP: a service, its page, and the decisions that it keeps."""
