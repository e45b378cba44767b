"""The names of the networks and the factories behind them; torch is imported only when a network is made."""

from __future__ import annotations

from robustfeatures.errors import UserError, suggestion

ARCHITECTURES = {
    "small-cnn": "robustfeatures.models.small_cnn:small_cnn",
}


def factory_name(architecture: str) -> str:
    """`<module>:<function>` of an architecture.

    Raises:
        UserError: no architecture has that name.
    """
    if architecture not in ARCHITECTURES:
        raise UserError(f"architecture: {architecture!r} is unknown{suggestion(architecture, ARCHITECTURES)}")
    return ARCHITECTURES[architecture]
