"""What masks secrets and personal data, before anything leaves the trusted side. Knows nothing of the other rooms."""

from corral.redact.form import MIN_VALUE
from corral.redact.redactor import Redactor
from corral.redact.scan import Span
from corral.redact.stream import Stream

__all__ = ["MIN_VALUE", "Redactor", "Span", "Stream"]
