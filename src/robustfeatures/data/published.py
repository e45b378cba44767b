"""Published data sets that the user provides as a folder of images, such as ImageNet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from robustfeatures.data.folder import digest_images, read_images

if TYPE_CHECKING:
    from robustfeatures.data.listing import Listing
    from robustfeatures.data.raw import RawData
    from robustfeatures.data.settings import Data

# Raises a UserError if the number of images differs from the published one; the text is the remedy in its message.
CheckCounts = Callable[[Mapping[str, "Listing"], "Data", str], None]


def digest_published(parameters: Data, listings: Mapping[str, Listing], check_counts: CheckCounts) -> str:
    """The digest of a published set that the user provides.

    Raises:
        UserError: `sha256` is not given, and the set does not have the published number of images; the message has the
            digest.
    """
    found = digest_images(parameters, listings)
    if parameters.sha256 is None:
        check_counts(listings, parameters, f"mend it, or, to use just these images, give data.sha256: {found}")
    return found


def read_published(
    parameters: Data, listings: Mapping[str, Listing], class_names: tuple[str, ...], check_counts: CheckCounts
) -> dict[str, RawData]:
    """The images of a published set that the user provides, all as RGB.

    Raises:
        UserError: `sha256` is not given, and the set does not have the published number of images; or as `read_images`.
    """
    if parameters.sha256 is None:
        check_counts(listings, parameters, "mend it, or give data.sha256, which `robustfeatures fetch` tells")
    return read_images(parameters, listings, class_names, convert=True)
