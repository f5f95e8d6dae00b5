"""What a chat template may call: each call and each filter is a step, and numbers in it have a bound."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from yaie.models.template_work import (
    LARGEST_ARGUMENT,
    TemplateWorkError,
    charged,
    check_widths,
    fits,
    step,
)


def joined(*parts: Any) -> str:
    """What `~` is for."""
    texts = [str(part) for part in parts]
    fits(sum(map(len, texts)))
    return "".join(texts)


def counted_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Of a function or a macro."""

    def counted(context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        step()
        _check_numbers((*args, *kwargs.values()))
        return charged(call(context, function, *args, **kwargs))

    return counted


def counted_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """One that a value is passed through."""
    is_format = function.__name__ == "do_format"

    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        step()
        for value in args[:2]:  # the first may be the context
            charged(value)
        _check_numbers((*args, *kwargs.values()))
        if is_format:
            check_widths((*args, *kwargs.values()))
        return charged(function(*args, **kwargs))

    return counted


def checked_format(wrap: Callable[..., Any]) -> Callable[..., Any]:
    """Of the methods `format` and `format_map` of texts."""

    def wrapped(method: Any) -> Any:
        safe = wrap(method)
        if safe is None:
            return None

        def checked(*args: Any, **kwargs: Any) -> Any:
            check_widths((method.__self__, *args, *kwargs.values()))
            return safe(*args, **kwargs)

        return checked

    return wrapped


def _check_numbers(values: tuple[Any, ...]) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > LARGEST_ARGUMENT:
            raise TemplateWorkError(f"it calls a function with a number above {LARGEST_ARGUMENT:,}")
