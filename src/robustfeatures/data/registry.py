"""The names of the data sources and the functions behind them."""

from __future__ import annotations

from robustfeatures.errors import UserError, suggestion

SOURCES = {
    "cinic10": "robustfeatures.data.cinic10:load",
    "cinic10-cifar": "robustfeatures.data.cinic10:load",
    "cinic10-imagenet": "robustfeatures.data.cinic10:load",
    "cifar10": "robustfeatures.data.cifar10:load",
    "cifar10.1-v4": "robustfeatures.data.cifar10_1:load",
    "cifar10.1-v6": "robustfeatures.data.cifar10_1:load",
    "digits": "robustfeatures.data.digits:load",
    "mnist": "robustfeatures.data.mnist:load",
    "svhn": "robustfeatures.data.svhn:load",
    "folder": "robustfeatures.data.folder:load",
    "npz": "robustfeatures.data.npz:load",
    "constructed": "robustfeatures.data.constructed:load",
    "restricted-imagenet": "robustfeatures.data.restricted_imagenet:load",
}

# Sources whose files are the user's own: a study gives their `path`, and the `sha256` that says what they hold.
OWN_FILES = frozenset({"constructed", "folder", "npz"})
# Published sets that the user has to bring, with the folder below the raw downloads where they lie unless `path` says
# otherwise. What they hold is known, so that a study need not say it.
BROUGHT = {
    "cinic10": "cinic10",
    "cinic10-cifar": "cinic10",
    "cinic10-imagenet": "cinic10",
    "restricted-imagenet": "imagenet",
}


def source_entry(source: str) -> str:
    """The function that reads a source, `module:function`; it takes the parameters and the folder of raw downloads.

    Raises:
        UserError: no source has that name.
    """
    if source not in SOURCES:
        raise UserError(f"data.source: {source!r} is unknown{suggestion(source, SOURCES)}")
    return SOURCES[source]
