"""The names of the data sources and the modules behind them."""

from __future__ import annotations

from robustfeatures.errors import UserError, suggestion

SOURCES = {
    "digits": "robustfeatures.data.digits",
    "npz": "robustfeatures.data.npz",
}


def source_module(source: str) -> str:
    """The module whose `load(parameters)` reads a source.

    Raises:
        UserError: no source has that name.
    """
    if source not in SOURCES:
        raise UserError(f"data.source: {source!r} is unknown{suggestion(source, SOURCES)}")
    return SOURCES[source]
