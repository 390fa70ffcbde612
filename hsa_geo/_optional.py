"""Optional packages: imported when first needed, with the command that installs them."""

from __future__ import annotations

import importlib
import warnings
from importlib.util import find_spec
from types import ModuleType

from hsa_geo.errors import HSAWarning, MissingPackageError

__all__ = ["HAS_NUMBA", "require"]


def _has_numba() -> bool:
    """Importing it costs nothing where PyTorch Geometric is in use, which has done so."""
    if find_spec("numba") is None:
        return False
    try:
        importlib.import_module("numba")
    except Exception as error:  # such as one that is older than numpy
        warnings.warn(
            f"numba is installed but does not load ({error}), so backend='block' is the default: "
            "reinstall it for this version of numpy.",
            HSAWarning,
            stacklevel=2,
        )
        return False
    return True


#: Whether numba is there and loads, which compiles the kernels of the "numba" backend.
HAS_NUMBA = _has_numba()


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import ``module`` or say what to install.

    Args:
        module: Name to import, e.g. ``"selectolax.lexbor"``.
        extra: The extra of hsa_geo that holds it, e.g. ``"html"``.
        purpose: What it is needed for, e.g. ``"reading HTML"``.

    Returns:
        The imported module.

    Raises:
        MissingPackageError: If the package is not installed.

    Example:
        >>> require("json", extra="html", purpose="reading JSON").loads("[1]")
        [1]
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"{purpose} needs the package '{module.partition('.')[0]}', which could not be "
            f"imported ({error}): run `pip install 'hsa_geo[{extra}]'`."
        ) from error
