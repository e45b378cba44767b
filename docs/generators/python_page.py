"""The page on the Python functions; mkdocstrings fills in their docstrings."""

from __future__ import annotations

from importlib import import_module

# The packages whose exported names are the interface, and what each is for.
PACKAGES = {
    "robustfeatures": "Results of a study, and the robust accuracy of any network",
    "robustfeatures.attacks": "Attacks on any network",
    "robustfeatures.models": "The networks of the studies",
}
HEAD = "# Python\n\nThese names are the interface. Everything else may change between versions.\n"


def make_python_page() -> str:
    """A directive of mkdocstrings for each exported name."""
    lines = [HEAD]
    for package, title in PACKAGES.items():
        lines += [f"## {title}", ""]
        for name in import_module(package).__all__:
            lines += [f"::: {package}.{name}", ""]
    return "\n".join(lines).rstrip() + "\n"
