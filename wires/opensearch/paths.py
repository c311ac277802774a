"""Ids in this wire's paths: anything but a word such as `_search`; model ids may have several parts."""

from __future__ import annotations

from starlette.convertors import StringConvertor, register_url_convertor


class IdConvertor(StringConvertor):
    """`{id:ml_id}`: parts that do not begin with an underscore."""

    regex = "[^/_][^/]*(?:/[^/_][^/]*)*"


register_url_convertor("ml_id", IdConvertor())
ID = "/{id:ml_id}"
