"""How the playground's files are served; no browser needed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from wires.playground import ASSETS, router


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = FastAPI()
    app.include_router(router)
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize("path", ["/playground", *(f"/playground/{name}" for name in ASSETS)])
def test_every_file_is_served_under_the_policy(client: TestClient, path: str) -> None:
    answer = client.get(path)
    policy = answer.headers["content-security-policy"].split("; ")
    assert answer.status_code == 200
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy)
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    head = client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(answer.content))


def test_a_known_file_is_not_sent_again(client: TestClient) -> None:
    etag = client.get("/playground").headers["etag"]
    again = client.get("/playground", headers={"if-none-match": f'"other", W/{etag}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/playground", headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("name", ["page.html", "__init__.py", "..%2F__init__.py", "nothing"])
def test_nothing_else_of_the_directory_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"/playground/{name}").status_code == 404


def test_the_page_names_no_outside_address_and_every_script_is_listed(client: TestClient) -> None:
    texts = {name: client.get(f"/playground/{name}").text for name in ASSETS}
    texts["page"] = client.get("/playground").text
    for name, text in texts.items():
        assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}, name
        assert set(re.findall(r'from "\./([a-z]+\.js)"', text)) <= set(ASSETS)
