"""What an architecture asks of images and of its width, refused in one line where it is not given."""

from __future__ import annotations

from robustfeatures.errors import UserError


def require_side(architecture: str, image_shape: tuple[int, int, int], smallest: int) -> None:
    """Images (C, H, W) must be at least `smallest` pixels high and wide.

    Raises:
        UserError: they are smaller.
    """
    _, height, width = image_shape
    if min(height, width) < smallest:
        raise UserError(
            f"architecture.name: {architecture!r} needs images of at least {smallest} x {smallest} pixels, "
            f"not {height} x {width}"
        )


def require_multiple(architecture: str, width: int, factor: int) -> None:
    """The width must be a multiple of `factor`, so that the filters of every layer are a whole number.

    Raises:
        UserError: it is not.
    """
    if width % factor:
        raise UserError(f"architecture.width: {architecture!r} takes a multiple of {factor}, not {width}")
