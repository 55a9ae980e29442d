"""The sandbox image: found by content, or built from a registry's base or from the distribution's packages."""

from corral.sandbox.image.base import choose_address, open_client
from corral.sandbox.image.build import ImageReport, build_image, expected_tag, find_image

__all__ = ["ImageReport", "build_image", "choose_address", "expected_tag", "find_image", "open_client"]
