"""Bodies of `/v1/chat/completions` and `/v1/completions` as jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from morpho.base.errors import MorphoError
from morpho.serve.api.answers import ChatAnswer, Job, TextAnswer
from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields
from morpho.serve.api.limits import Limits
from morpho.serve.api.messages import messages_of, tools_of, with_tool_prompt
from morpho.serve.api.sampling import grammar_of, params_of, take_of_others
from morpho.serve.api.tools import SPECIAL, THOUGHT, THOUGHTS, ToolText
from morpho.serve.engine.request import Request
from morpho.serve.hosting.served import Served
from morpho.weights.text.chat import encode_chat_within

OF_TEMPLATE = ("reasoning_effort",)  # settings of a chat that a template may know
USUAL_COMPLETION = 16  # tokens, as OpenAI's own server makes unless told


def chat_job(fields: Fields, served: Served, limits: Limits, request_id: str) -> Job:
    """A chat, by the model's own template."""
    messages = messages_of(fields, limits)
    choice = fields.left().get("tool_choice")
    named = isinstance(choice, dict) and choice.get("type") == "function"
    tools, forced = tools_of(fields, limits)
    grammar = grammar_of(fields, limits)
    take_of_others(fields)
    fields.object("prediction")
    fields.only("modalities", ["text"], why="only text is made")
    fields.only("audio", why="only text is made")
    fields.only("web_search_options", why="there is no search here")
    names = _template_names(fields)
    told = _logprobs_of_chat(fields)
    most = _most_tokens(fields, limits, served, "max_completion_tokens", "max_tokens")
    # A form is that of texts: where a call is forced, there is none that it could hold for.
    params = params_of(fields, limits, served.defaults, max_tokens=most, logprobs=told,
                       vocabulary=served.vocabulary, talks=True, grammar=forced or grammar)
    stream, include = _streaming(fields)
    scores, commitment = _prompt_logprobs(fields, stream), fields.flag("commitment")
    reply, unfinished = ending(fields)
    fields.finish()
    params = replace(params, prompt_logprobs=scores, commitment=commitment)
    prompt = chat_prompt(served, messages, tools, names, reply, unfinished)
    answer = ChatAnswer(served.name, 1, params.n, served.tokenizer, told is not None)
    answer.prompt_logprobs = scores
    marks = {} if params.show_specials else {
        number: text for text, number in served.tokenizer.specials.items() if text in (SPECIAL if tools else THOUGHT)}
    if tools or params.grammar is None:
        schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
        thinks = params.grammar is None and _thinks(prompt, served)
        for each in answer.choices:
            each.tools = ToolText([*schemas], stream=stream, schemas=schemas, thinks=thinks, sure=forced is not None,
                                  named=named and forced is not None)
    request = Request(tuple(prompt), params, request_id, served.adapter, limits.timeout_s, unfinished, marks)
    return Job([request], answer, stream, include)


def _thinks(prompt: list[int], served: Served) -> bool:
    """Whether the prompt ends where the model begins to think."""
    tail = [token for token in prompt[-8:] if token < served.tokenizer.vocab_size]
    return bool(served.tokenizer.decode(tail, specials=True).rstrip().endswith((*THOUGHTS,)))


def chat_prompt(served: Served, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None,
                names: dict[str, Any] | None = None, reply: bool = True, unfinished: bool = False) -> list[int]:
    """The tokens of a chat, up to where the model's `reply` begins, or to the end of an `unfinished` last message.
    Tools that the template does not write are told by the message of the system."""
    if not served.tokenizer.chat_template:
        raise ApiError(400, f"the model '{served.name}' has no chat template; use /v1/completions", "messages",
                       "no_chat_template")
    names = {**(names or {}), "reply": reply, "unfinished": unfinished}
    try:
        if tools and not served.knows_tools():
            served.note_tool_prompt()
            messages, tools = with_tool_prompt(messages, tools), None
        found = encode_chat_within(served.tokenizer, messages, served.context - 1, tools=tools or None, **names)
    except MorphoError as error:
        raise ApiError(400, error.message or str(error), "messages") from None
    if found is None:
        raise too_long(served, "messages")
    return found


def ending(fields: Fields) -> tuple[bool, bool]:
    """(whether the prompt goes up to a reply, whether the last message is to be continued)"""
    unfinished = fields.flag("continue_final_message")
    reply = fields.flag("add_generation_prompt", not unfinished)
    if reply and unfinished:
        raise ApiError(400, "'continue_final_message' and 'add_generation_prompt' are both true",
                       "continue_final_message")
    return reply, unfinished


def _prompt_logprobs(fields: Fields, stream: bool) -> int | None:
    found = fields.whole("prompt_logprobs", None, most=20)
    if found is not None and stream:
        raise ApiError(400, "'prompt_logprobs' come with the whole answer: ask without 'stream', or with 'echo' and "
                            "'logprobs' of /v1/completions", "prompt_logprobs")
    return found


def _template_names(fields: Fields) -> dict[str, Any]:
    names = {name: text for name in OF_TEMPLATE if (text := fields.text(name)) is not None}
    given = fields.take("chat_template_kwargs", {})
    if not isinstance(given, dict) or not all(isinstance(value, str | bool | int | float) for value in given.values()) \
            or {"messages", "tools", "reply", "template", "add_generation_prompt", "unfinished",
                "range"} & {*given}:
        raise ApiError(400, "'chat_template_kwargs' is not an object of plain settings", "chat_template_kwargs")
    return {**names, **given}


def _logprobs_of_chat(fields: Fields) -> int | None:
    wanted, most = fields.flag("logprobs"), fields.whole("top_logprobs", None, most=20)
    if most is not None and not wanted:
        raise ApiError(400, "'top_logprobs' needs 'logprobs' to be true", "top_logprobs")
    return (most or 0) if wanted else None


def completion_job(fields: Fields, served: Served, limits: Limits, request_id: str) -> Job:
    """Job of `/v1/completions`: one prompt or several, as texts or as tokens."""
    prompts = _prompts(fields, served, limits)
    grammar = grammar_of(fields, limits)
    told = fields.whole("logprobs", None, most=20)
    most = _most_tokens(fields, limits, served, "max_tokens", least=0)
    params = params_of(fields, limits, served.defaults, max_tokens=USUAL_COMPLETION if most is None else most,
                       logprobs=told, vocabulary=served.vocabulary, talks=False, grammar=grammar)
    echo, stream_and_usage = fields.flag("echo"), _streaming(fields)
    scores = _prompt_logprobs(fields, stream_and_usage[0])
    scored = [each for each in (scores, told if echo else None) if each is not None]
    params = replace(params, prompt_logprobs=max(scored, default=None), commitment=fields.flag("commitment"))
    fields.only("best_of", params.n, why="all of n are given back")
    fields.only("suffix", "", why="texts are continued, not filled in")
    take_of_others(fields)
    fields.finish()
    specials = params.show_specials
    texts = [served.tokenizer.decode(prompt, specials=specials) for prompt in prompts] if echo else ()
    requests = [Request(tuple(prompt), params, f"{request_id}-{place}" if len(prompts) > 1 else request_id,
                        served.adapter, limits.timeout_s) for place, prompt in enumerate(prompts)]
    answer = TextAnswer(served.name, prompts, params.n, served.tokenizer, told is not None, texts, told or 0, specials)
    answer.prompt_logprobs = scores
    return Job(requests, answer, *stream_and_usage)


def _prompts(fields: Fields, served: Served, limits: Limits) -> list[list[int]]:
    given = fields.take("prompt")
    if given is None:
        raise fields.wrong("prompt", "is missing")
    several = [given] if is_one(given) else given
    around = fields.flag("add_special_tokens", True)
    if not isinstance(several, list) or not several:
        raise fields.wrong("prompt", "is neither a text, nor a list of tokens, nor a list of either")
    if len(several) > limits.prompts:
        raise fields.wrong("prompt", f"has more than {limits.prompts} prompts")
    return [prompt_tokens(each, served, "prompt", around) for each in several]


def is_one(given: Any) -> bool:
    """Whether a text or a list of tokens stands where several may."""
    return isinstance(given, str) or (isinstance(given, list) and bool(given) and type(given[0]) is int)


def prompt_tokens(given: Any, served: Served, name: str, around: bool = True) -> list[int]:
    """The tokens of a text, or tokens as they are; at least one, and fewer than the context has places."""
    return tokens_of(given, served, name, served.context - 1, around=around)


def tokens_of(given: Any, served: Served, name: str, most: int, specials: bool = True, around: bool = True
              ) -> list[int]:
    """The tokens of a text, or tokens as they are, from one to `most`: what is longer is not read to its end."""
    found: list[int] | None
    if isinstance(given, str):
        try:
            found = served.tokenizer.encode_within(given, most, specials=specials, around=around)
        except MorphoError as error:
            raise ApiError(400, error.message or str(error), name) from None
    elif isinstance(given, list):
        found = given if len(given) <= most else None
    else:
        raise ApiError(400, f"'{name}' holds what is neither a text nor a list of tokens", name)
    if found is None:
        raise too_long(served, name)
    if not found:
        raise ApiError(400, f"'{name}' is empty", name)
    if not all(type(each) is int for each in found):
        raise ApiError(400, f"'{name}' holds what is neither a text nor a list of tokens", name)
    wrong = next((token for token in found if not 0 <= token < served.vocabulary), None)
    if wrong is not None:
        raise ApiError(400, f"'{name}' has token {wrong}, which is not in a vocabulary of {served.vocabulary}", name)
    return found


def too_long(served: Served, name: str) -> ApiError:
    return ApiError(400, f"'{name}' has more tokens than the model's context of {served.context} holds", name,
                    "context_length_exceeded")


def _most_tokens(fields: Fields, limits: Limits, served: Served, *names: str, least: int = 1) -> int | None:
    found = [fields.whole(name, None, least=least, most=limits.max_tokens) for name in names]
    return next((each for each in found if each is not None), served.defaults.max_new_tokens)


def _streaming(fields: Fields) -> tuple[bool, bool]:
    stream, options = fields.flag("stream"), fields.object("stream_options")
    if options is None:
        return stream, False
    if not stream:
        raise ApiError(400, "'stream_options' needs 'stream' to be true", "stream_options")
    include = options.flag("include_usage")
    options.irrelevant("include_obfuscation")
    options.finish()
    return stream, include
