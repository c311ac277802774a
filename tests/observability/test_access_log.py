"""Lines go past the logger only where that changes nothing: an operator's handlers, levels and filters are heeded."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from io import StringIO

import pytest

from gateway.access_log import LineHandler, access_log, write_line

PARENT = logging.getLogger("polywire")


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Both loggers without handlers, and afterwards as they were."""
    both = (access_log, PARENT)
    kept = [(logger, logger.handlers, logger.filters, logger.propagate, logger.level) for logger in both]
    for logger in both:
        logger.handlers, logger.filters, logger.propagate = [], [], True
        logger.setLevel(logging.INFO)
    yield
    for logger, handlers, filters, propagate, level in kept:
        logger.handlers, logger.filters, logger.propagate = handlers, filters, propagate
        logger.setLevel(level)


def listening(logger: logging.Logger, level: int = logging.NOTSET) -> StringIO:
    said = StringIO()
    handler = LineHandler(said)
    handler.setLevel(level)
    logger.addHandler(handler)
    return said


def test_a_line_is_written_as_it_is() -> None:
    access_log.propagate = False
    said = listening(access_log)
    write_line({"a": "안녕 %s", "b": None})
    assert said.getvalue() == '{"a":"안녕 %s","b":null}\n'


def test_all_handlers_have_it_and_those_of_the_loggers_above() -> None:
    said = [listening(access_log), listening(access_log), listening(PARENT)]
    write_line({"a": 1})
    assert [each.getvalue() for each in said] == ['{"a":1}\n'] * 3


def test_levels_and_filters_are_heeded() -> None:
    said = [listening(access_log, logging.WARNING), listening(access_log)]
    write_line({"a": 1})
    access_log.addFilter(lambda _: False)
    write_line({"a": 2})
    assert [each.getvalue() for each in said] == ["", '{"a":1}\n']
