"""SageMaker: what a chat request becomes for each container."""

from __future__ import annotations

import pytest

from adapters.sagemaker_dialects import lmi_body, openai_body, tgi_body
from gateway.config import ModelRow
from gateway.errors import Unsupported
from gateway.request import ChatRequest, Image, Message, Role, Sampling, Text, Tool, text_message
from tests.aws.account import chat


def test_the_messages_body_is_the_one_that_tgi_knows() -> None:
    sampling = Sampling(max_tokens=300, temperature=0.1, top_p=0.2)
    body = openai_body(chat("플레이리스트 만들어줘", sampling=sampling))
    expected = {
        "model": "tgi",
        "messages": [{"role": "user", "content": "플레이리스트 만들어줘"}],
        "max_tokens": 300,
        "temperature": 0.1,
        "top_p": 0.2,
        "stream": True,
    }
    assert expected.items() <= body.items()


def test_a_container_that_checks_its_name_is_told_it() -> None:
    row = ModelRow(id="a", provider="p", upstream="endpoint", served_model="Qwen/Qwen3-8B")
    assert openai_body(chat("hi", options=row.options))["model"] == "Qwen/Qwen3-8B"


def test_generate_bodies() -> None:
    sampling = Sampling(max_tokens=5, temperature=0.0, top_p=1.0, stop=("END",))
    common = {"max_new_tokens": 5, "do_sample": False, "details": True, "return_full_text": False}
    tgi, lmi = tgi_body(chat("안녕", sampling=sampling)), lmi_body(chat("안녕", sampling=sampling))
    assert tgi == {"inputs": "안녕", "parameters": common | {"stop": ["END"]}, "stream": True}
    assert lmi == {"inputs": "안녕", "parameters": common | {"stop_sequences": ["END"]}, "stream": True}


def test_a_conversation_becomes_one_prompt() -> None:
    messages = (text_message(Role.SYSTEM, "Be kind."), text_message(Role.USER, "hi"))
    assert tgi_body(ChatRequest("e", messages))["inputs"] == "System: Be kind.\n\nUser: hi\n\nAssistant:"


def test_generate_forms_refuse_images_and_tools() -> None:
    image = ChatRequest("e", (Message(Role.USER, (Text("x"), Image("data:image/png;base64,"))),))
    for request in (image, chat("x", tools=(Tool("f"),))):
        with pytest.raises(Unsupported):
            tgi_body(request)
