"""Where pages of the documentation are, for help and errors that name one."""

from __future__ import annotations


def address(page: str) -> str:
    """A page of ``docs``: its path in the repository, or its URL in a site that this has.

    Args:
        page: Relative to ``docs``, e.g. ``reference/errors.md#plugins``.
    """
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        urls = metadata("empo-core").get_all("Project-URL", [])
    except PackageNotFoundError:  # Run from a source tree that is not installed.
        urls = []
    for label, _, url in (entry.partition(", ") for entry in urls):
        if label.lower() == "documentation":
            return f"{url.rstrip('/')}/docs/{page.replace('.md', '.html')}"
    return f"docs/{page}"
