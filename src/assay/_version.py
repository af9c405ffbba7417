"""The version of assay, read by the build as well."""

__all__ = ["__version__"]

__version__ = "0.1.0"
