"""The methods of derived sets by their kind; a module is imported only when its method runs."""

from __future__ import annotations

from dataclasses import dataclass

PACKAGE = "robustfeatures.derived"


@dataclass(frozen=True)
class MethodEntry:
    """What planning knows of a method: the module whose function `derive` makes a `Derivation`."""

    module: str


METHODS = {
    "inversion": MethodEntry(f"{PACKAGE}.inversion"),
    "targeted-attack": MethodEntry(f"{PACKAGE}.targeted_attack"),
    "untargeted-attack": MethodEntry(f"{PACKAGE}.untargeted_attack"),
    "loss-gradient": MethodEntry(f"{PACKAGE}.loss_gradient"),
    "errors": MethodEntry(f"{PACKAGE}.errors"),
    "transferring": MethodEntry(f"{PACKAGE}.transferring"),
}
