"""Go's text/template with sprig's functions, as a small interpreter: conditions and values written for Conduit.

`lexer` and `parser` follow Go's grammar, `compiler` makes closures, `values` and `printing` know Go's types and formats.
"""

from penstock.plan.gotemplate.errors import TemplateError
from penstock.plan.gotemplate.template import Template

__all__ = ["Template", "TemplateError"]
