"""Wordings of refusals of one part of a request: an image, a document, a name, a signature, an order of messages.

Each row says what it is about (`part`), so that this part can leave. The order among them, and to the other rows, is
that of `foldline.failures.table`.
"""

from __future__ import annotations

from foldline.failures.wordings import Row

__all__ = ["DOCUMENT", "IMAGE", "MALFORMED", "STRINGS"]

# fmt: off
IMAGE: tuple[Row, ...] = (
    Row("image.in_result", "image", "openai, lmstudio, anthropic",
        "OpenHands/OpenHands#7700; jetbrains-cc-gui#984; "
        "caozhiyuan/copilot-api#196: in a tool's result, or a failed one",
        r"images? (?:urls? |inputs? |parts? |content )?(?:is |are )?(?:only )?(?:allowed|supported|accepted|valid)"
        r"(?: only)?[^.]{0,40}?\b(?:user|role)|only text (?:tool_result )?(?:blocks?|content)|"
        r"content must be (?:of )?(?:type )?\W{0,2}text\W{0,2} if|tool[ _](?:messages?|results?)[^.]{0,60}?"
        r"(?:only (?:support|contain|accept)\w{0,2} text|must (?:be|contain) (?:a |only )?(?:text|string)|image)",
        part="result_media"),
    Row("image.size", "image", "anthropic, openai", "gptme/gptme#185; anthropics/claude-code#4778",
        r"image exceeds .{0,40}?maximum|image dimensions? exceed|\bimage (?:file )?(?:is |was )?too (?:large|big)|"
        r"image size (?:exceeds|is too)", part="image"),
    Row("image.count", "image", "azure, vllm, anthropic",
        "anomalyco/opencode#39677 and #47487; vllm-project/vllm#17092; anthropics/claude-code#24541",
        r"too many images|too much media|maximum number of images|many-image requests|"
        r"(?:at most|up to|maximum of|more than|limit of|only supports?) \d{1,6} ?\W?images?\b|"
        r"\d{1,6} ?images?\b[^.]{0,40}?(?:exceed\w{0,4}|maximum|at most|limit|>)|"
        r"number of images?[^.]{0,40}?(?:exceed|maximum|limit|more than|greater)", part="image"),
    Row("image.unreadable", "image", "anthropic, openai, gemini", "microsoft/azurechat#336",
        r"(?:could not|cannot|unable to|failed to) (?:process|decode|download|load|read|open) (?:the )?(?:input |"
        r"provided )?images?\b|\binvalid (?:base64 )?image|unsupported image|image (?:data|url) .{0,60}?(?:invalid|"
        r"not valid|not represent)|image_parse_error|image\.source.{0,40}?media type|"
        r"\bimages?\b[^.]{0,40}?(?:could not|cannot|can't|failed to) be (?:process|decod|download|load|read|open|"
        r"fetch)|"
        r"(?:time ?out|error) (?:while|when) downloading\b|"
        r"content\W{0,2}\d{1,4}\W{1,3}(?:image_url|input_image|image)\b", part="image"),
    Row("image.unsupported", "image", "openai, openrouter, deepseek, z.ai",
        "browser-use/web-ui#274; block/buzz#5701",
        r"image_url is only supported|(?:not|n't) support (?:image|vision|multimodal|picture)|"
        r"(?:that support|(?:missing|no|lacks)\b[^.]{0,30}?\b(?:for|support)) image input|"
        r"images? (?:inputs? )?(?:is|are) not supported|"
        r"unknown variant \W?(?:image|input_image)|"
        r"content\.type .{0,30}?allowed values: \['text'\]", part="image"),
    Row("image.code", "image", "openai", "OpenAI Responses API reference: error codes",
        r"invalid_image(?:_\w{1,20})?|image_too_(?:large|small)|image_parse_error|unsupported_image_media_type|"
        r"\w{0,20}(?:image|media|vision)\w{0,20}_(?:exceed\w{0,4}|limit\w{0,12}|too_(?:large|many|big))",
        where="code", part="image"),
)

DOCUMENT: tuple[Row, ...] = (
    Row("document.pages", "document", "anthropic, gemini",
        "Anthropic, PDF support: 100 pages; anthropics/claude-code#25202",
        r"maximum (?:number )?of [\d,]{1,6} (?:pdf )?pages|too many (?:pdf |document )?pages|"
        r"\bpages?\b[^.]{0,40}?(?:exceed\w{0,4}|maximum|at most|limit)|(?:at most|up to) \d{1,5} pages|"
        r"document has no pages", part="document"),
    Row("document.unreadable", "document", "anthropic, openai, gemini, bedrock",
        "anthropics/claude-code#25202, #20195 and #15312: one PDF, and the session is refused for ever",
        r"\b(?:pdfs?|documents?|input_files?|file_data|file data|attachments?)\b[^.]{0,60}?(?:not valid|"
        r"\binvalid|corrupt|"
        r"password|encrypted|damaged|unreadable|not supported|unsupported|too (?:large|many|big|long)|exceed)|"
        r"(?:could not|cannot|can't|unable to|failed to) (?:process|read|open|parse|load|decode|extract)[^.]{0,40}?"
        r"\b(?:pdf|document|file)s?\b|\b(?:invalid|unsupported|corrupt\w{0,3}|malformed|encrypted|"
        r"password[- ]protected) "
        r"(?:pdf|document|file)s?\b(?! descriptor)|\b(?:pdf|document)\.source\.|"
        r"unsupported (?:mime|media|file)[- ]?types?|(?:mime|media|file)[- ]?type [^.]{0,60}?not supported",
        part="document"),
    Row("document.code", "document", "openai, vercel", "OpenAI Responses API reference: error codes",
        r"(?:invalid|unsupported|empty|corrupt\w{0,3})_(?:file|pdf|document)\w{0,20}|(?:file|pdf|"
        r"document)_(?:too_large|"
        r"parse_error|invalid|unreadable)", where="code", part="document"),
)

# A limit on one string is in characters, not tokens. On a content it is met by sending less of that content, as with
# bytes; on an id it is a fault of the history; on anything short (a tool description) it is a fault of the request.
STRINGS: tuple[Row, ...] = (
    Row("string.id", "malformed", "openai", "vercel/ai#8132; decolua/9router#393",
        r"(?:\.|\b)(?:id|call_id|tool_call_id)\W?: string too long", part="call_id"),
    Row("string.name", "malformed", "openai", "anthropics/claude-code#94799: a whole command as a tool's name",
        r"(?:\.|\b)name\W?: string too long", part="name"),
    Row("string.short_field", "other", "openai", "OpenAI API: limits on descriptions and metadata",
        r"string too long.{0,60}?maximum length \d{1,4}\b"),
    Row("string.content", "bytes_overflow", "openai",
        "litellm known substrings; the limit is 10,485,760 characters of one content",
        r"string too long"),
)

MALFORMED: tuple[Row, ...] = (
    Row("malformed.openai_tools", "malformed", "openai", "OpenAI chat API; openai/openai-python#1351",
        r"must be followed by tool messages|must be a response to a prec\w{3,8} message|"
        r"did not have response messages", part="pairs"),
    Row("malformed.item", "malformed", "openai-responses",
        "continuedev/continue#10092; TanStack/ai#1212: what is not stored, or was stored elsewhere, cannot be named",
        r"\bitem (?:with id )?\W?\w{0,90}\W? ?(?:was )?not found|without its required .{0,20}?(?:item|reasoning)|"
        r"duplicate\w{0,2} items?\b",
        part="item"),
    Row("malformed.openai_items", "malformed", "openai-responses",
        "continuedev/continue#10092; vercel/ai#7099; TanStack/ai#1212",
        r"no tool (?:call|output) found for", part="pairs"),
    Row("malformed.name", "malformed", "openai, anthropic, gemini",
        "anthropics/claude-code#94799; docker/docker-agent#3974; strands-agents/harness-sdk#1069",
        r"[.\]'\"]name\b.{0,60}?(?:pattern|at most \d|characters|match|must |too long|invalid)|"
        r"(?:invalid|illegal) (?:function|tool) name|"
        r"(?:function|tool) name\b.{0,60}?(?:invalid|match|pattern|must start|only contain|may only)", part="name"),
    Row("malformed.call_id", "malformed", "anthropic, mistral, openai",
        "Anthropic Messages API: ids are [a-zA-Z0-9_-]+; Mistral: nine letters and digits; openclaw/openclaw#23494",
        r"(?:tool_use\.id|tool_use_id|tool_call_id|call_id|tool_calls\[\d{1,4}\]\.id|tool call id|"
        r"tool_result\.\w{0,20}id)\b"
        r".{0,80}?(?:pattern|at most|length|must be|too long|invalid|characters)", part="call_id"),
    Row("malformed.anthropic_tools", "malformed", "anthropic", "Anthropic tool use guide",
        r"duplicate\w{0,2} (?:tool|function)?[ _]?call[ _]?ids?\b|tool_use`? ids (?:were found|must be unique)|"
        r"unexpected `?tool_(?:use_id|use|result)|tool_result`? block|"
        r"each `?tool_use`? block must have|(?:server_tool_use|_tool_result)\W{0,2} (?:blocks? )?.{0,40}?without",
        part="pairs"),
    Row("malformed.reasoning", "malformed", "anthropic, gemini, deepseek",
        "anthropics/claude-code#63284; lbjlaq/Antigravity-Manager#139; "
        "anthropics/anthropic-sdk-python#1598; openai/codex#8145",
        r"(?:thinking|reasoning)\b[^.]{0,40}?blocks?\b.{0,40}?(?:cannot|can't|must not) be (?:modif|chang)|"
        r"blocks in the latest assistant message cannot be modified|thinking\.signature|"
        r"invalid `?signature`? in `?thinking|"
        r"expected `?thinking`? or `?redacted_thinking|missing a `?thought_signature|thought[ _]signature[^.]{0,30}?"
        r"(?:invalid|not valid)|reasoning_content.{0,60}?(?:missing|must be passed|required)|"
        r"missing .{0,12}?reasoning_content|encrypted[ _]content .{0,160}?could not be|"
        r"(?:thinking|reasoning)\b[^.]{0,40}?signature|signature[^.]{0,40}?(?:thinking|reasoning)", part="reasoning"),
    Row("malformed.gemini_turns", "malformed", "gemini", "langchain-ai/langchain#27799; microsoft/vscode#299295",
        r"function (?:call|response) turn comes immediately after|number of function response parts", part="pairs"),
    Row("malformed.system", "malformed", "gemma, gemini", "the chat template of Gemma 2; Gemini API errors",
        r"(?:\bsystem\b\W{0,2} ?(?:roles?|messages?|prompts?|instructions?)|\brole \W?system\W?|"
        r"\bdeveloper (?:instruction|message|role)s?)\b[^.]{0,20}?(?:not|n't) (?:be )?(?:support|allow|enabl|"
        r"accept)",
        part="system"),
    Row("malformed.roles", "malformed", "vllm, mistral, anthropic", "vllm-project/vllm#6862; charmbracelet/crush#279",
        r"\b(?:roles?|messages?|turns?)\b[^.]{0,30}?(?:must|should|need to|have to|not|n't)\b[^.]{0,30}?\balternat|"
        r"\bconsecutive (?:\w{1,10} )?(?:messages?|roles?|turns?)\b|messages? (?:of|with|from|in) the same role|"
        r"\b(?:two|several) (?:user|assistant|system) (?:messages|turns)|unexpected role '?\w{1,20}'? after|"
        r"expected last role|"
        r"first message must (?:use|be|have) .{0,12}user|not the same number of function calls and responses|"
        r"\bsystem\W{0,2} (?:messages?|prompts?|roles?)\b[^.]{0,20}?\b(?:must|only|should|"
        r"has to)\b[^.]{0,20}?\b(?:first|"
        r"beginning|start)|role \W?system\W? must be (?:at )?the (?:first|beginning|start)|only (?:one|"
        r"a single) system message|"
        r"multiple (?:consecutive )?(?:user|system) messages", part="roles"),
    Row("malformed.empty", "malformed", "anthropic", "Anthropic messages API",
        r"messages?(?: must have| with|: text content blocks must be)? non-empty|"
        r"text content blocks must be non-empty|at least one message is required|"
        r"content cannot end with trailing whitespace|must have non-empty content|content (?:field )?(?:is|"
        r"cannot be|must not"
        r" be) empty|does not support assistant message prefill|"
        r"conversation must end with a user message", part="empty"),
    Row("malformed.code", "malformed", "mistral", "charmbracelet/crush#279",
        r"invalid_request_message_order|3230", where="code", part="pairs"),
    Row("malformed.encrypted", "malformed", "openai", "openai/codex#8145; Wei-Shaw/sub2api#2863",
        r"invalid_(?:encrypted_content|signature|thinking\w{0,20})|thinking_signature_invalid", where="code",
        part="reasoning"),
)
# fmt: on
