"""LLM requests of each dialect, and what may change in each without another question being asked."""

from __future__ import annotations

from typing import Any

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT: dict[str, Any] = {
    "model": "gpt-5",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Paris?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_7Ht",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Paris"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_7Ht", "content": "18 °C"},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}],
}
RESPONSES: dict[str, Any] = {
    "model": "gpt-5",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather in Paris?"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "18 °C"},
    ],
    "tools": [{"type": "function", "name": "weather", "parameters": WEATHER}],
}
ANTHROPIC: dict[str, Any] = {
    "model": "claude-sonnet-5",
    "max_tokens": 1024,
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Weather in Paris?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "18 °C"}]},
    ],
    "tools": [{"name": "weather", "input_schema": WEATHER}],
}
GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"id": "f-1", "name": "weather", "args": {"city": "Paris"}}}],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "f-1", "name": "weather", "response": {"t": 18}}}],
        },
    ],
    "tools": [{"functionDeclarations": [{"name": "weather", "parameters": WEATHER}]}],
}
OLLAMA: dict[str, Any] = {
    "model": "llama3.2",
    "messages": [
        {"role": "user", "content": "Weather in Paris?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "weather", "arguments": {}}}],
        },
        {"role": "tool", "tool_name": "weather", "content": "18 °C"},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}],
}
GENERATE: dict[str, Any] = {"model": "llama3.2", "system": "Be brief.", "prompt": "Why is the sky blue?"}

DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "responses": ("/v1/responses", RESPONSES),
    "anthropic": ("/v1/messages", ANTHROPIC),
    "gemini": ("/v1beta/models/gemini-3-pro:generateContent", GEMINI),
    "ollama": ("/api/chat", OLLAMA),
    "generate": ("/api/generate", GENERATE),
}
TRANSPORT: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "gpt-5-mini", "temperature": 0.7, "top_p": 0.9, "seed": 42, "stream": True, "user": "u-1",
        "stream_options": {"include_usage": True}, "metadata": {"request_id": "r-9"}, "max_tokens": 5,
        "max_completion_tokens": 5, "n": 1, "stop": ["\n"], "presence_penalty": 1,
        "frequency_penalty": 1,
        "logit_bias": {"50256": -100}, "logprobs": True, "service_tier": "flex", "store": True,
        "prompt_cache_key": "k", "safety_identifier": "s", "reasoning_effort": "high",
        "parallel_tool_calls": False,
        "request_id": "0b5e", "functions": None,
    },
    "responses": {
        "temperature": 0.1, "stream": True, "store": False, "metadata": {"a": "b"}, "max_output_tokens": 9,
        "reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"], "truncation": "auto",
        "user": "x",
        "background": True, "prompt_cache_key": "k", "previous_response_id": None,
    },
    "anthropic": {
        "max_tokens": 9, "temperature": 0.0, "top_k": 5, "top_p": 0.5, "stream": True,
        "metadata": {"user_id": "u"},
        "stop_sequences": ["x"], "thinking": {"type": "enabled", "budget_tokens": 2048},
        "service_tier": "auto",
    },
    "gemini": {
        "generationConfig": {"temperature": 0.2, "seed": 1}, "safetySettings": [{"category": "c"}],
        "labels": {"a": "b"},
    },
    "ollama": {"stream": False, "options": {"temperature": 0.1}, "keep_alive": "5m", "think": True},
    "generate": {"stream": False, "options": {"num_ctx": 4096}, "keep_alive": 0, "raw": False},
}  # fmt: skip
