"""A stack's desired resources, declared to Pulumi; and components for programs that set clusters up.

A project of its own may have more of them in a directory of this name.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
