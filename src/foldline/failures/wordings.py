"""The wordings of providers for a request that failed: one table, in the order of decision.

The first row that matches decides, so the order is the policy:

    request too large for a rate  ->  quota  ->  rate  ->  bytes  ->  image  ->  document  ->  strings
    ->  output budget  ->  prompt overflow  ->  codes  ->  malformed history  ->  auth  ->  ambiguous

To add a wording, add a row here in its group and its text to FIELD in tests/failures/test_wordings.py. A test there
fails for a row that no text reaches, because an earlier row takes it.

A pattern is a case-insensitive regular expression, searched in text whose white space is single spaces. Gaps are
bounded (`.{0,60}`), so that no text makes a search slow. `source` says where the wording was seen: a public report
(owner/name#number), a public client that matches it, or the server's own documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from foldline.failures.failure import Kind, PartKind

__all__ = ["WORDINGS", "Wording"]


@dataclass(frozen=True, slots=True)
class Wording:
    """One row: `pattern` is searched in the text, or must match a whole code (`where`).

    With `statuses` the row applies to these HTTP statuses only. `part` is the part of the request that is refused.
    """

    id: str
    kind: Kind
    provider: str
    source: str
    pattern: str
    where: Literal["text", "code"] = "text"
    statuses: tuple[int, ...] = ()
    part: PartKind | None = None


# One row reads as one entry: what it is, where it was seen, the wording.
# fmt: off
WORDINGS: Final[tuple[Wording, ...]] = (
    # Larger than the whole rate: before all else, because waiting never helps.
    Wording("rate.request_too_large", "request_too_large_for_rate", "openai, groq",
        "Aider-AI/aider#1880; continuedev/continue#10218; waiting never helps",
        r"request too large for .{0,240}?(?:tokens|input) per (?:min|hour|day)"),
    # Quotas, then rates. They veto every size below: "too many tokens per day" is no overflow.
    Wording("quota.per_day", "quota", "any", "anomalyco/opencode#13015: quota text read as overflow",
        r"\bper ?(?:day|week|month)\b|\w{3}perday|\b[TR]PD\b|"
        r"\b(?:daily|weekly|monthly) (?:\w{1,20} )?(?:limit|quota|usage|allowance)"),
    Wording("rate.per_minute_quota", "rate", "gemini, vertex",
        "google-gemini/gemini-cli#14811: says quota, means a rate",
        r"\w{3}perminute|resource (?:has been )?exhausted\b"),
    Wording("quota.code", "quota", "openai, moonshot, litellm", "OpenAI error codes guide; Moonshot API errors",
        r"insufficient_quota|billing_(?:hard_limit_reached|not_active|error)|exceeded_current_quota_error|"
        r"insufficient_(?:balance|credits|funds)|payment_required|budgetexceedederror|"
        r"usage_limit_reached", where="code"),
    Wording("quota.exceeded", "quota", "openai, azure, gemini", "google-gemini/gemini-cli#8414",
        r"exceed(?:ed|s)? (?:your|the|its) .{0,60}?quota\b|quota (?:is |has been |was )?(?:exceeded|exhausted)|"
        r"call volume quota|usage limit (?:is |has been )?(?:reached|exceeded)|"
        r"exceeded (?:the|your) [^.]{0,30}usage limit"),
    Wording("quota.money", "quota", "anthropic, openrouter, deepseek",
        "can1357/oh-my-pi#9569; anomalyco/opencode#12219",
        r"credit balance is too low|insufficient (?:credits?|balance|funds|quota)|requires more credits|"
        r"can only afford|payment required|budget (?:has been |was )?exceeded|"
        r"prompt tokens limit exceeded: .{0,60}credits|余额不足"),
    Wording("quota.extra_usage", "quota", "anthropic",
        "anthropics/claude-code#42616: seen on a request of 23k tokens, so not about its size",
        r"extra usage is required"),
    Wording("rate.words", "rate", "any",
        "strands and pi check throttling before overflow; bedrock: too many tokens, please wait",
        r"\brate[ _-]?limit|too many (?:concurrent )?requests|\bthrottl|\bper[ -](?:min(?:ute)?|second|hour)\b|"
        r"\b[TR]PM\b|please wait before|(?:try|retry) again in \d|retry[- ]after\b|\boverloaded\b|"
        r"(?:at|over) capacity|engine is currently busy|请求过于频繁|速率限制"),
    Wording("rate.code", "rate", "any", "OpenAI error codes guide; Anthropic API errors; AWS common errors",
        r"rate_?limit_?(?:exceeded|error|reached)(?:_error)?|throttling(?:exception|_?error)?|"
        r"too_?many_?requests(?:_?(?:error|exception))?|resource_?exhausted|overloaded_?error|engine_overloaded_error|"
        r"429", where="code"),
    Wording("server.unavailable", "other", "bedrock", "pi lists it among what is no overflow",
        r"^(?:error code: )?(?:503 )?service (?:is )?(?:temporarily )?unavailable"),
    # Sizes in bytes.
    Wording("bytes.body", "bytes_overflow", "nginx, vertex, axum, moonshot",
        "litellm vertex branch; HTTP status 413 phrases (RFC 9110, 15.5.14); MoonshotAI/kimi-code#1862",
        r"(?:request (?:entity|body|payload)|payload|entity|content) (?:is )?too large(?!.{0,60}?\btokens)|"
        r"(?:payload|request|body|content|messages?) (?:size|length)(?: \(?[\d,_ ]{1,16}(?: bytes)?\)?)? (?:exceeds|"
        r"is larger)(?!.{0,60}?(?:context|token|n_ctx))|failed to buffer the request body"),
    Wording("bytes.anthropic", "bytes_overflow", "anthropic", "Anthropic API errors: 413 request_too_large, 32 MB",
        r"(?:request|body) exceeds the (?:maximum|allowed|limit)(?: allowed)? ?(?:size|number of bytes)|"
        r"exceeds? the maximum (?:allowed )?(?:request|payload|body|message) size|"
        r"maximum (?:request|payload|body) size"),
    Wording("bytes.bedrock", "bytes_overflow", "bedrock", "strands bedrock",
        r"too many total text bytes"),
    Wording("bytes.request_too_large", "bytes_overflow", "any", "RFC 9110, 15.5.14",
        r"request too large", statuses=(413,)),
    # One part of the request is refused: `part` says which, so that it can be left out.
    Wording("image.in_result", "image", "openai, lmstudio, anthropic",
        "OpenHands/OpenHands#7700; jetbrains-cc-gui#984; caozhiyuan/copilot-api#196: in a tool's result, or "
        "a failed one",
        r"images? (?:urls? |inputs? |parts? |content )?(?:is |are )?(?:only )?(?:allowed|supported|accepted|"
        r"valid)(?: only)?[^.]{0,40}?\b(?:user|role)|only text (?:tool_result )?(?:blocks?|content)|"
        r"content must be (?:of )?(?:type )?\W{0,2}text\W{0,2} if|"
        r"tool[ _](?:messages?|results?)[^.]{0,60}?(?:only (?:support|contain|accept)\w{0,2} text|must (?:be|"
        r"contain) (?:a |only )?(?:text|string)|image)", part="result_media"),
    Wording("image.size", "image", "anthropic, openai", "gptme/gptme#185; anthropics/claude-code#4778",
        r"image exceeds .{0,40}?maximum|image dimensions? exceed|\bimage (?:file )?(?:is |was )?too (?:large|big)|"
        r"image size (?:exceeds|is too)", part="image"),
    Wording("image.count", "image", "azure, vllm, anthropic",
        "anomalyco/opencode#39677 and #47487; vllm-project/vllm#17092; anthropics/claude-code#24541",
        r"too many images|too much media|maximum number of images|many-image requests|"
        r"(?:at most|up to|maximum of|more than|limit of|only supports?) \d{1,6} ?\W?images?\b|"
        r"\d{1,6} ?images?\b[^.]{0,40}?(?:exceed\w{0,4}|maximum|at most|limit|>)|"
        r"number of images?[^.]{0,40}?(?:exceed|maximum|limit|more than|greater)", part="image"),
    Wording("image.unreadable", "image", "anthropic, openai, gemini", "microsoft/azurechat#336",
        r"(?:could not|cannot|unable to|failed to) (?:process|decode|download|load|read|open) (?:the )?(?:input |"
        r"provided )?images?\b|\binvalid (?:base64 )?image|unsupported image|"
        r"image (?:data|url) .{0,60}?(?:invalid|not valid|not represent)|image_parse_error|"
        r"image\.source.{0,40}?media type|\bimages?\b[^.]{0,40}?(?:could not|cannot|can't|failed to) be (?:process|"
        r"decod|download|load|read|open|fetch)|(?:time ?out|error) (?:while|when) downloading\b|"
        r"content\W{0,2}\d{1,4}\W{1,3}(?:image_url|input_image|image)\b", part="image"),
    Wording("image.unsupported", "image", "openai, openrouter, deepseek, z.ai",
        "browser-use/web-ui#274; block/buzz#5701",
        r"image_url is only supported|(?:not|n't) support (?:image|vision|multimodal|picture)|"
        r"(?:that support|(?:missing|no|lacks)\b[^.]{0,30}?\b(?:for|support)) image input|"
        r"images? (?:inputs? )?(?:is|are) not supported|unknown variant \W?(?:image|input_image)|"
        r"content\.type .{0,30}?allowed values: \['text'\]", part="image"),
    Wording("image.code", "image", "openai", "OpenAI Responses API reference: error codes",
        r"invalid_image(?:_\w{1,20})?|image_too_(?:large|small)|image_parse_error|unsupported_image_media_type|"
        r"\w{0,20}(?:image|media|vision)\w{0,20}_(?:exceed\w{0,4}|limit\w{0,12}|too_(?:large|many|"
        r"big))", where="code", part="image"),
    Wording("document.pages", "document", "anthropic, gemini",
        "Anthropic, PDF support: 100 pages; anthropics/claude-code#25202",
        r"maximum (?:number )?of [\d,]{1,6} (?:pdf )?pages|too many (?:pdf |document )?pages|"
        r"\bpages?\b[^.]{0,40}?(?:exceed\w{0,4}|maximum|at most|limit)|(?:at most|up to) \d{1,5} pages|"
        r"document has no pages", part="document"),
    Wording("document.unreadable", "document", "anthropic, openai, gemini, bedrock",
        "anthropics/claude-code#25202, #20195 and #15312: one PDF, and the session is refused for ever",
        r"\b(?:pdfs?|documents?|input_files?|file_data|file data|attachments?)\b[^.]{0,60}?(?:not valid|\binvalid|"
        r"corrupt|password|encrypted|damaged|unreadable|not supported|unsupported|too (?:large|many|big|long)|exceed)|"
        r"(?:could not|cannot|can't|unable to|failed to) (?:process|read|open|parse|load|decode|"
        r"extract)[^.]{0,40}?\b(?:pdf|document|file)s?\b|"
        r"\b(?:invalid|unsupported|corrupt\w{0,3}|malformed|encrypted|password[- ]protected) (?:pdf|document|"
        r"file)s?\b(?! descriptor)|\b(?:pdf|document)\.source\.|unsupported (?:mime|media|file)[- ]?types?|"
        r"(?:mime|media|file)[- ]?type [^.]{0,60}?not supported", part="document"),
    Wording("document.code", "document", "openai, vercel", "OpenAI Responses API reference: error codes",
        r"(?:invalid|unsupported|empty|corrupt\w{0,3})_(?:file|pdf|document)\w{0,20}|"
        r"(?:file|pdf|document)_(?:too_large|parse_error|invalid|unreadable)", where="code", part="document"),
    # A limit on one string counts characters, not tokens. On a content it is met by sending less of that content, as
    # with bytes; on an id it is a fault of the history; on anything short (a tool description) one of the request.
    Wording("string.id", "malformed", "openai", "vercel/ai#8132; decolua/9router#393",
        r"(?:\.|\b)(?:id|call_id|tool_call_id)\W?: string too long", part="call_id"),
    Wording("string.name", "malformed", "openai", "anthropics/claude-code#94799: a whole command as a tool's name",
        r"(?:\.|\b)name\W?: string too long", part="name"),
    Wording("string.short_field", "other", "openai", "OpenAI API: limits on descriptions and metadata",
        r"string too long.{0,60}?maximum length \d{1,4}\b"),
    Wording("string.content", "bytes_overflow", "openai",
        "litellm known substrings; the limit is 10,485,760 characters of one content",
        r"string too long"),
    # The cap on the output is too large: a smaller one helps, a smaller prompt does not.
    Wording("output.anthropic_sum", "output_overflow", "anthropic, bedrock",
        "continuedev/continue#6080; strands bedrock",
        r"input length and `?max_tokens`? exceed"),
    Wording("output.anthropic_cap", "output_overflow", "anthropic", "anthropics/claude-code#24451",
        r"max_(?:completion_|output_)?tokens: [\d,_ ]{1,16} > [\d,_ ]{1,16}, which is the maximum allowed number of "
        r"output"),
    Wording("output.too_large", "output_overflow", "openai, vllm",
        "ChatGPTNextWeb/NextChat#3195; claude-code-best/claude-code#272",
        r"max_(?:completion_|output_|new_)?tokens\W? (?:or \W?max_completion_tokens\W? )?is too large"),
    Wording("output.openrouter_split", "output_overflow", "openrouter", "OpenHands/OpenHands#9937",
        r"of text input, .{0,60}?in the output"),
    Wording("output.range", "output_overflow", "deepseek, dashscope", "deepseek-ai/DeepSeek-V3#69",
        r"range of max_(?:completion_|output_)?tokens (?:should be|is) \["),
    Wording("output.gemini", "output_overflow", "vertex", "stackblitz-labs/bolt.diy#955; BerriAI/litellm#10548",
        r"maxOutputTokens value of"),
    Wording("output.bedrock", "output_overflow", "bedrock", "RooCodeInc/Roo-Code#248; sigoden/aichat#813",
        r"maximum tokens you requested exceeds? the model limit"),
    Wording("output.groq", "output_overflow", "groq", "RooCodeInc/Roo-Code#5136; skapadia3214/groq-moa#8",
        r"max_(?:completion_)?tokens\W?(?: for \S{1,80})? must be less than or equal to"),
    Wording("output.above_maximum", "output_overflow", "volcengine, openai", "langgenius/dify#14376",
        r"max_(?:completion_|output_)?tokens\W.{0,60}?integer above maximum value"),
    Wording("output.generic", "output_overflow", "any", "the same words in another order",
        r"max_(?:completion_|output_|new_)?tokens\W? .{0,40}?(?:exceeds?|greater than|larger than) .{0,40}?(?:maximum|"
        r"limit|context)"),
    # The prompt is too large.
    Wording("prompt.vllm_negative", "prompt_overflow", "vllm, nim",
        "vllm-project/vllm#4667; Alishahryar1/free-claude-code#1198: the room left for output is negative",
        r"max_tokens must be at least ?1, got -"),
    Wording("prompt.maximum_context", "prompt_overflow", "openai, azure, openrouter, deepseek, vllm, bedrock",
        "BerriAI/litellm#15968; OpenHands/OpenHands#8149; QwenLM/Qwen-Agent#759",
        r"maximum context (?:length|size|window)(?: of this model| for this model)? (?:is|of)\b"),
    Wording("prompt.legacy_split", "prompt_overflow", "openai", "evalstate/fast-agent#621; run-llama/llama_index#948",
        r"requested [\d,_ ]{1,16} tokens.{0,8}? in (?:the messages|your prompt)"),
    Wording("prompt.configured_limit", "prompt_overflow", "openai, azure, bedrock",
        "BerriAI/litellm#15968; pydantic-ai bedrock",
        r"input tokens exceed"),
    Wording("prompt.reduce_length", "prompt_overflow", "openai, groq",
        "OpenHands/OpenHands#1902; stackblitz-labs/bolt.diy#564",
        r"reduce the length of the messages"),
    Wording("prompt.vllm_total", "prompt_overflow", "vllm", "AIDotNet/OpenCowork#82; vllm-project/vllm#36197",
        r"prompt contains (?:at least )?[\d,_ ]{1,16} input tokens"),
    Wording("prompt.gemini", "prompt_overflow", "gemini, vertex", "google-gemini/gemini-cli#4692; pydantic-ai google",
        r"number of tokens allowed"),
    Wording("prompt.tgi_sum", "prompt_overflow", "together, sagemaker, tgi", "litellm together and sagemaker branches",
        r"inputs`? tokens \+ `?max_new_tokens`? must be <="),
    Wording("prompt.tgi_inputs", "prompt_overflow", "tgi", "text-generation-inference validation",
        r"inputs`? must have less than"),
    Wording("prompt.requested_count", "prompt_overflow", "sglang, llama-cpp-python",
        "abetlen/llama-cpp-python#416; litellm known substrings",
        r"requested (?:token count|tokens?(?: \([\d,_ ]{1,16}\))?|input length(?: [\d,_ ]{1,16})?) exceeds?"),
    Wording("prompt.mistral", "prompt_overflow", "mistral", "pydantic-ai models/mistral.py; strands mistral",
        r"too large for model\b"),
    Wording("prompt.configured_context", "prompt_overflow", "ds4, rkllama", "antirez/ds4#150; jaylfc/taOS#1738",
        r"context (?:size|window|length) is [\d,_ ]{1,16} tokens|configured context size is"),
    Wording("prompt.dashscope", "prompt_overflow", "dashscope", "QwenLM/qwen-code#98; anomalyco/opencode#45834",
        r"range of input length (?:should be|is)"),
    Wording("prompt.moonshot", "prompt_overflow", "moonshot", "pi overflow list",
        r"exceeded model token limit"),
    Wording("prompt.xai", "prompt_overflow", "xai", "pi overflow list",
        r"maximum (?:prompt|input) length is [\d,_ ]{1,16} but"),
    Wording("prompt.cohere", "prompt_overflow", "cohere",
        "pydantic-ai models/cohere.py; cohere-ai/sandbox-topically#4; openclaw/openclaw#58839",
        r"too many tokens: (?:size limit|total number of tokens)|total tokens (?:of [^.]{0,40} )?exceeds? "),
    Wording("prompt.max_seq_len", "prompt_overflow", "siliconflow", "BerriAI/litellm#10188; continuedev/continue#10993",
        r"must be less than (?:or equal to )?max_seq_len"),
    Wording("prompt.max_input", "prompt_overflow", "bedrock", "openclaw/openclaw#58839",
        r"exceeds? the max(?:imum)? input tokens? limit|maximum number of input tokens"),
    Wording("prompt.cerebras", "prompt_overflow", "cerebras", "litellm cerebras branch",
        r"current length is [\d,_ ]{1,16} while limit is"),
    Wording("prompt.copilot", "prompt_overflow", "github-copilot", "pi overflow list",
        r"prompt token count of [\d,_ ]{1,16} exceeds"),
    Wording("prompt.aistudio", "prompt_overflow", "aistudio proxy, lmstudio",
        "iBUHub/AIStudioToAPI#268; anomalyco/opencode#11141",
        r"cannot truncate (?:to [\d,_ ]{1,16}, required|prompt with n_keep)"),
    Wording("prompt.lmstudio_keep", "prompt_overflow", "lmstudio", "lmstudio-ai/lmstudio-bug-tracker#237 and #546",
        r"tokens to keep from the initial prompt|trying to keep the first"),
    Wording("prompt.mid_generation", "prompt_overflow", "lmstudio, llama.cpp",
        "lmstudio-ai/lmstudio-bug-tracker#1251; llama-server (500): room ran out while it wrote",
        r"reached context length|context size has been exceeded"),
    Wording("prompt.litellm", "prompt_overflow", "litellm", "langchain-ai/langchain#39300",
        r"ContextWindowExceededError|ContextOverflowError"),
    Wording("prompt.too_many", "prompt_overflow", "bedrock, ai21", "litellm bedrock and ai21 branches",
        r"too many input tokens|prompt has too many tokens"),
    Wording("prompt.characters", "prompt_overflow", "bedrock, anthropic",
        "litellm bedrock and anthropic branches; counts characters",
        r"expected maxLength: ?\d|expected maxLength:|prompt: length\b"),
    Wording("prompt.more_than_allowed", "prompt_overflow", "any gateway", "opencode provider error tests",
        r"more than max(?:imum)? tokens allowed"),
    Wording("prompt.too_long", "prompt_overflow", "anthropic, bedrock, zhipu, ollama, perplexity, replicate",
        "langchain-anthropic; BerriAI/litellm#21647; vllm-project/vllm#10440",
        r"\b(?:prompt|inputs?|messages?|conversation|context|request)(?: (?:text|length|content|"
        r"tokens?))?(?: \([^)]{0,40}\))? (?:is |are )?too long|is too long and exceeds limit"),
    Wording("prompt.exceeds_context", "prompt_overflow", "vllm, sglang, together, ollama, llama.cpp, openrouter",
        "BerriAI/litellm#10793; earendil-works/pi#5677; ollama/ollama#17889",
        r"(?:exceed\w{0,4}|(?:longer|larger|greater|bigger) than|overflow\w{0,4}) .{0,60}?(?:context[ _](?:length|"
        r"window|size|limit)|n_ctx\b|max_model_len|model(?:'s)? maximum|maximum model length|(?:maximum|"
        r"allowed) (?:allowed )?(?:input|prompt|sequence) length)"),
    Wording("prompt.context_exceeded", "prompt_overflow", "minimax, any", "pi overflow list",
        r"context[ _](?:length|window|size|limit)(?: \w{1,20}){0,2}[ _](?:exceed|overflow)\w{0,4}"),
    Wording("prompt.length_limit", "prompt_overflow", "huggingface", "litellm huggingface branch",
        r"length limit exceeded"),
    Wording("prompt.chinese", "prompt_overflow", "glm and qwen gateways", "ctxnorm markers",
        r"超长|超[过出].{0,8}?最大.{0,8}?(?:长度|限制)|上下文.{0,12}?(?:超[过出限]|过长)"),
    Wording("prompt.code", "prompt_overflow", "openai, llama.cpp, github-copilot, mistral, zhipu",
        "ggml-org/llama.cpp#15780; pydantic-ai models/mistral.py; litellm bigmodel",
        r"(?!\w{0,40}(?:rate|quota|file|image|media|output|audio|tool|time|day|month))\w{0,40}(?:context|prompt|"
        r"input)\w{0,40}(?:exceed|overflow|too_?long|too_?large)\w{0,20}|"
        r"context_?(?:length|window|size|limit)_?(?:error|exception)|exceed\w{0,4}_?context\w{0,30}|"
        r"model_max_prompt_tokens_exceeded|3051|1261", where="code"),
    Wording("bytes.code", "bytes_overflow", "anthropic, openai", "Anthropic API errors",
        r"request_?too_?large(?:_?error)?|string_above_max_length|payload_too_large|"
        r"request_entity_too_large", where="code"),
    # The history has the wrong form.
    Wording("malformed.openai_tools", "malformed", "openai", "OpenAI chat API; openai/openai-python#1351",
        r"must be followed by tool messages|must be a response to a prec\w{3,8} message|"
        r"did not have response messages", part="pairs"),
    Wording("malformed.item", "malformed", "openai-responses",
        "continuedev/continue#10092; TanStack/ai#1212: what is not stored, or was stored elsewhere, cannot be named",
        r"\bitem (?:with id )?\W?\w{0,90}\W? ?(?:was )?not found|without its required .{0,20}?(?:item|reasoning)|"
        r"duplicate\w{0,2} items?\b", part="item"),
    Wording("malformed.openai_items", "malformed", "openai-responses",
        "continuedev/continue#10092; vercel/ai#7099; TanStack/ai#1212",
        r"no tool (?:call|output) found for", part="pairs"),
    Wording("malformed.name", "malformed", "openai, anthropic, gemini",
        "anthropics/claude-code#94799; docker/docker-agent#3974; strands-agents/harness-sdk#1069",
        r"[.\]'\"]name\b.{0,60}?(?:pattern|at most \d|characters|match|must |too long|invalid)|"
        r"(?:invalid|illegal) (?:function|tool) name|(?:function|tool) name\b.{0,60}?(?:invalid|match|pattern|"
        r"must start|only contain|may only)", part="name"),
    Wording("malformed.call_id", "malformed", "anthropic, mistral, openai",
        "Anthropic Messages API: ids are [a-zA-Z0-9_-]+; Mistral: nine letters and digits; openclaw/openclaw#23494",
        r"(?:tool_use\.id|tool_use_id|tool_call_id|call_id|tool_calls\[\d{1,4}\]\.id|tool call id|"
        r"tool_result\.\w{0,20}id)\b.{0,80}?(?:pattern|at most|length|must be|too long|invalid|"
        r"characters)", part="call_id"),
    Wording("malformed.anthropic_tools", "malformed", "anthropic", "Anthropic tool use guide",
        r"duplicate\w{0,2} (?:tool|function)?[ _]?call[ _]?ids?\b|tool_use`? ids (?:were found|must be unique)|"
        r"unexpected `?tool_(?:use_id|use|result)|tool_result`? block|each `?tool_use`? block must have|"
        r"(?:server_tool_use|_tool_result)\W{0,2} (?:blocks? )?.{0,40}?without", part="pairs"),
    Wording("malformed.reasoning", "malformed", "anthropic, gemini, deepseek",
        "anthropics/claude-code#63284; lbjlaq/Antigravity-Manager#139; anthropics/anthropic-sdk-python#1598; "
        "openai/codex#8145",
        r"(?:thinking|reasoning)\b[^.]{0,40}?blocks?\b.{0,40}?(?:cannot|can't|must not) be (?:modif|chang)|"
        r"blocks in the latest assistant message cannot be modified|thinking\.signature|"
        r"invalid `?signature`? in `?thinking|expected `?thinking`? or `?redacted_thinking|"
        r"missing a `?thought_signature|thought[ _]signature[^.]{0,30}?(?:invalid|not valid)|"
        r"reasoning_content.{0,60}?(?:missing|must be passed|required)|missing .{0,12}?reasoning_content|"
        r"encrypted[ _]content .{0,160}?could not be|(?:thinking|reasoning)\b[^.]{0,40}?signature|"
        r"signature[^.]{0,40}?(?:thinking|reasoning)", part="reasoning"),
    Wording("malformed.gemini_turns", "malformed", "gemini", "langchain-ai/langchain#27799; microsoft/vscode#299295",
        r"function (?:call|response) turn comes immediately after|number of function response parts", part="pairs"),
    Wording("malformed.system", "malformed", "gemma, gemini", "the chat template of Gemma 2; Gemini API errors",
        r"(?:\bsystem\b\W{0,2} ?(?:roles?|messages?|prompts?|instructions?)|\brole \W?system\W?|"
        r"\bdeveloper (?:instruction|message|role)s?)\b[^.]{0,20}?(?:not|n't) (?:be )?(?:support|allow|enabl|"
        r"accept)", part="system"),
    Wording("malformed.roles", "malformed", "vllm, mistral, anthropic",
        "vllm-project/vllm#6862; charmbracelet/crush#279",
        r"\b(?:roles?|messages?|turns?)\b[^.]{0,30}?(?:must|should|need to|have to|not|n't)\b[^.]{0,30}?\balternat|"
        r"\bconsecutive (?:\w{1,10} )?(?:messages?|roles?|turns?)\b|messages? (?:of|with|from|in) the same role|"
        r"\b(?:two|several) (?:user|assistant|system) (?:messages|turns)|unexpected role '?\w{1,20}'? after|"
        r"expected last role|first message must (?:use|be|have) .{0,12}user|"
        r"not the same number of function calls and responses|"
        r"\bsystem\W{0,2} (?:messages?|prompts?|roles?)\b[^.]{0,20}?\b(?:must|only|should|"
        r"has to)\b[^.]{0,20}?\b(?:first|beginning|start)|"
        r"role \W?system\W? must be (?:at )?the (?:first|beginning|start)|only (?:one|a single) system message|"
        r"multiple (?:consecutive )?(?:user|system) messages", part="roles"),
    Wording("malformed.empty", "malformed", "anthropic", "Anthropic messages API",
        r"messages?(?: must have| with|: text content blocks must be)? non-empty|"
        r"text content blocks must be non-empty|at least one message is required|"
        r"content cannot end with trailing whitespace|must have non-empty content|"
        r"content (?:field )?(?:is|cannot be|must not be) empty|does not support assistant message prefill|"
        r"conversation must end with a user message", part="empty"),
    Wording("malformed.code", "malformed", "mistral", "charmbracelet/crush#279",
        r"invalid_request_message_order|3230", where="code", part="pairs"),
    Wording("malformed.encrypted", "malformed", "openai", "openai/codex#8145; Wei-Shaw/sub2api#2863",
        r"invalid_(?:encrypted_content|signature|thinking\w{0,20})|"
        r"thinking_signature_invalid", where="code", part="reasoning"),
    # No access.
    Wording("auth.words", "auth", "any", "OpenAI error codes guide; google: API key not valid (status 400)",
        r"(?:incorrect|invalid|missing|expired|no|wrong) (?:x-)?api[ _-]?key|"
        r"api key (?:is )?(?:not valid|invalid|missing|expired|not found|required)|\bunauthori[sz]ed\b|"
        r"authentication (?:failed|error|required)|invalid (?:bearer|access|auth(?:entication)?) (?:token|"
        r"credentials?)|permission denied|no auth credentials found|鉴权失败|认证失败"),
    Wording("auth.code", "auth", "any", "Anthropic API errors; AWS common errors",
        r"invalid_api_key|authentication_?error|permission_?(?:denied_?)?error|permission_denied|unauthenticated|"
        r"unauthorized|accessdeniedexception|unrecognizedclientexception|expiredtokenexception", where="code"),
    # These fit an overflow and something else just as well: believed only when our estimate is near the window.
    Wording("ambiguous.batch", "ambiguous", "llama.cpp", "llama-server: the batch is too small, not the window",
        r"increase the physical batch size|input is too large to process"),
    Wording("ambiguous.token_limit", "ambiguous", "any gateway", "pi generic fallback",
        r"token limit (?:was |is |has been )?exceeded|exceed(?:s|ed)? (?:the |your )?(?:max(?:imum)? )?tokens? limit|"
        r"too many tokens"),
    Wording("ambiguous.too_large", "ambiguous", "any gateway", "does not say tokens or bytes",
        r"\b(?:prompt|request|input|message)s? (?:is |are )?too (?:large|big)\b"),
    Wording("ambiguous.says_nothing", "ambiguous", "any",
        "earendil-works/pi#4940: an empty 400 on a request of 200 tokens",
        r"^(?:error code: )?(?:4\d\d )?(?:status code )?\(no body\)$|"
        r"^(?:error code: )?(?:400 )?(?:bad request|invalid request|invalid_request_error|provider returned error|"
        r"upstream error|unknown error|error)\W{0,3}$|"
        r"^client error '4(?:00|13|22)\b", statuses=(0, 200, 400, 413, 422)),
)
# fmt: on
