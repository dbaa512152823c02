"""A finished run as tables, figures and a page."""
