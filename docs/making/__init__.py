"""Makes the pages that are not written by hand."""
