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
# The splits that a source brings, none where it is one pool of images; of the others the files say it.
SPLITS: dict[str, tuple[str, ...]] = {
    "cifar10": ("train", "test"),
    "cifar10.1-v4": ("test",),
    "cifar10.1-v6": ("test",),
    "cinic10": ("train", "validation", "test"),
    "cinic10-cifar": ("train", "validation", "test"),
    "cinic10-imagenet": ("train", "validation", "test"),
    "constructed": (),
    "digits": (),
    "mnist": ("train", "test"),
    "restricted-imagenet": ("train", "test"),
    "svhn": ("train", "test"),
}
# Sources whose images have many sizes.
SIZED = frozenset({"restricted-imagenet"})


def source_entry(source: str, field: str = "data.source") -> str:
    """The function that reads the source in a field, `module:function`; it takes the parameters and the raw downloads.

    Raises:
        UserError: no source has that name.
    """
    if source not in SOURCES:
        raise UserError(f"{field}: {source!r} is unknown{suggestion(source, SOURCES)}")
    return SOURCES[source]


def check_size(source: str, size: int | None, field: str = "data.size") -> None:
    """Check the `size` in a field.

    Raises:
        UserError: the source needs one, and it is not given.
    """
    if source in SIZED and size is None:
        raise UserError(f"{field}: the source {source!r} needs a size, such as 224; its images have many")
