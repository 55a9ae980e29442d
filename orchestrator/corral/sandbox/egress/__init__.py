"""The way out of a box: what it asks for is judged, recorded, checked and connected here, on the trusted side."""

from corral.sandbox.egress.dial import Dialer
from corral.sandbox.egress.gate import NetworkReport
from corral.sandbox.egress.http.secret import MIN_SECRET, Secret, make_placeholder
from corral.sandbox.egress.serve import Egress, TunnelBox

__all__ = ["MIN_SECRET", "Dialer", "Egress", "NetworkReport", "Secret", "TunnelBox", "make_placeholder"]
