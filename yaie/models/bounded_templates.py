"""A bound on the work of chat templates, which are programs that come with a model.

transformers renders them in Jinja's sandbox, which keeps them from Python's insides and not from a loop
in a loop in a loop, or from a text that doubles. What they do is counted (`template_work.py`,
`template_calls.py`).

transformers compiles a template in one function, which is replaced by one that compiles the same tree
with the counting in it. Rendering, and what templates are given, stay transformers' own.
"""

from functools import lru_cache
from typing import Any

from yaie.models.template_calls import checked_format, counted_call, counted_filter, joined
from yaie.models.template_work import OPERATORS, checked_operator, turn, written


def bound_templates() -> None:
    """From now on transformers' templates are counted. Twice is harmless."""
    from transformers.utils import chat_template_utils as theirs

    if theirs._compile_jinja_template is not _compiled:
        theirs._compile_jinja_template = _compiled


@lru_cache
def _compiled(text: str) -> Any:
    """What transformers makes of a template, with the counting in it."""
    from jinja2 import Template
    from transformers.utils.chat_template_utils import _cached_compile_jinja_template

    environment = _cached_compile_jinja_template("").environment  # each template has one of its own
    environment.globals.pop("lipsum", None)
    environment.intercepted_binops = frozenset(OPERATORS)
    environment.call_binop = checked_operator(environment.call_binop)
    environment.call = counted_call(environment.call)
    environment.wrap_str_format = checked_format(environment.wrap_str_format)
    environment.filters = {name: counted_filter(one) for name, one in environment.filters.items()}
    environment.finalize = written
    kind = type(environment)
    environment.__class__ = type(kind.__name__, (kind,), {"yaie_step": property(turn)})
    environment.yaie_joined = joined
    tree = _counting(environment.parse(text))
    return Template.from_code(environment, environment.compile(tree), environment.make_globals({}))


def _counting(tree: Any) -> Any:
    """The same template, which counts its turns and joins texts by `joined`."""
    from jinja2 import nodes
    from jinja2.visitor import NodeTransformer

    class Counting(NodeTransformer):
        def visit_Concat(self, node: Any) -> Any:
            self.generic_visit(node)
            function = nodes.EnvironmentAttribute("yaie_joined")
            return nodes.Call(function, node.nodes, [], None, None)

    tree = Counting().visit(tree)
    for node in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
        # An attribute of the environment: a call would go through the sandbox each time.
        node.body.insert(0, nodes.ExprStmt(nodes.EnvironmentAttribute("yaie_step")))
        if isinstance(node, nodes.For) and node.test is not None:
            node.test = nodes.And(nodes.EnvironmentAttribute("yaie_step"), node.test)
    return tree.set_environment(tree.environment)
