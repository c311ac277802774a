"""Filling templates: values stay data wherever they stand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.template import Place, Values, fill

TEXTS = st.text(alphabet=st.characters(codec="utf-8"))


@settings(max_examples=50, deadline=None)
@given(TEXTS)
def test_any_text_arrives_as_itself_in_a_quoted_place(text: str) -> None:
    for value in (text, "${parameters.other}" + text, json.dumps({"a": text})):
        values = Values({"other": "secret"}, {"x": value})
        assert json.loads(fill('{"a": "${parameters.x}"}', values, Place.BODY).text) == {"a": value}


@settings(max_examples=50, deadline=None)
@given(st.recursive(st.none() | st.booleans() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_any_json_value_arrives_as_itself_in_an_unquoted_place(value: object) -> None:
    filled = fill('{"a": ${parameters.x}}', Values({}, {"x": json.dumps(value)}), Place.BODY)
    assert json.loads(filled.text) == {"a": value}


def test_a_value_cannot_close_the_string_it_stands_in() -> None:
    values = Values({}, {"x": '", "model": "gpt-4', "y": '"}], "model": "gpt-4'})
    filled = fill('{"a": "${parameters.x}", "b": ${parameters.y}}', values, Place.BODY)
    with pytest.raises(json.JSONDecodeError):
        json.loads(filled.text)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("${parameters.u:-d}", "d"),
        ("${parameters.empty:-d}", ""),
        ('"${parameters.u:-null}"', "null"),
        ('"${parameters.c:-null}"', '"C"'),
        ("$${parameters.c}", "${parameters.c}"),
        ("${parameters.u}", "${parameters.u}"),
        ("${parameters.c.toString()}", "C"),
        ("${other.c}", "${other.c}"),
    ],
)
def test_the_syntax_of_placeholders(template: str, filled: str) -> None:
    values = Values({"c": "C", "empty": ""})
    assert fill(template, values, Place.BODY).text == filled


def test_the_connectors_own_parameters_may_name_others_and_the_request_wins() -> None:
    connector = {"prompt": "Human: ${parameters.inputs}\\nYou are ${parameters.name}.", "name": "Bo"}
    values = Values(connector, {"inputs": '${parameters.name} says "hi"', "name": "Al"})
    text = fill('{"p": "${parameters.prompt}"}', values, Place.BODY).text
    assert json.loads(text) == {"p": 'Human: ${parameters.name} says "hi"\nYou are Al.'}


def test_parameters_that_name_one_another_end() -> None:
    with pytest.raises(InvalidRequest, match="without end"):
        fill("${parameters.a}", Values({"a": "${parameters.b}", "b": "${parameters.a}"}), Place.BODY)


def test_only_the_connector_switches_escaping_off() -> None:
    asked = {"x": 'a"b', "no_escape_params": "x"}
    assert fill('"${parameters.x}"', Values({}, asked), Place.BODY).text == '"a\\"b"'
    assert fill('"${parameters.x}"', Values({"no_escape_params": "x"}, asked), Place.BODY).text == '"a"b"'


def test_a_value_in_a_url_is_one_part_of_it() -> None:
    values = Values({"host": "api.example:8443/v1"}, {"x": "../a?b#c/${parameters.host}"})
    filled = fill("https://${parameters.host}/${parameters.x}", values, Place.URL)
    assert filled.text == "https://api.example:8443/v1/..%2Fa%3Fb%23c%2F%24%7Bparameters.host%7D"


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\x00b", "a\x7fb"])
def test_a_header_takes_no_control_characters(value: str) -> None:
    with pytest.raises(InvalidRequest):
        fill("${parameters.x}", Values({}, {"x": value}), Place.HEADER)


def test_credentials_are_data_too_and_missing_ones_stay() -> None:
    values = Values({"model": "m"}, credential={"key": "${parameters.model}"})
    assert fill("Bearer ${credential.key}", values, Place.HEADER).text == "Bearer ${parameters.model}"
    assert fill("Bearer ${credential.other}", values, Place.HEADER).text == "Bearer ${credential.other}"
    assert "parameters.model" not in repr(values)
