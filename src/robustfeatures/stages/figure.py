"""Stage figure: one experiment as a bitmap and as a vector drawing."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robustfeatures.views import ViewJob

BITMAP_DPI = 200


def make(view: ViewJob) -> Mapping[str, bytes]:
    """The contents of `<id>.png` and `<id>.pdf` by suffix; the same rows give the same bytes."""
    ((experiment, results),) = view.experiments()
    assert experiment.figure is not None
    figure = experiment.figure(results)
    contents = {}
    for suffix, metadata in ((".png", {"Software": None}), (".pdf", {"CreationDate": None})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix[1:], dpi=BITMAP_DPI, metadata=metadata)
        contents[suffix] = buffer.getvalue()
    return contents
