"""Pages of the documentation that are made of the code and of what was measured."""

from making import api, commands, methods, settings

# By the file that holds each; a test compares them with what is made now.
PAGES = {
    "docs/methods.md": methods.page,
    "docs/reference/api.md": api.page,
    "docs/reference/commands.md": commands.page,
    "docs/reference/settings.md": settings.page,
}
