"""An explanation as one HTML file that needs nothing else.

Example:
    >>> import torch
    >>> from hsa_geo.builders import from_html
    >>> from hsa_geo.nn import SignalClassifier, TokenEncoder
    >>> page = from_html("<h1>Log in</h1><form><input name=user></form>")
    >>> model = SignalClassifier({"text": TokenEncoder(2**14, 16)}, num_classes=2, channels=16)
    >>> report = write_report("report.html", model, page, labels=["other", "login"])
    >>> report.size < 100_000
    True
"""

from hsa_geo.explain.report.write import Report, write_report

__all__ = ["Report", "write_report"]
