"""What a stack is made of, as Pulumi resources. Components declare; they compute nothing.

A project of its own may have more of them in a directory of this name.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
