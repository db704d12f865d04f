"""The field's wordings for what goes wrong with a request, as one table in the order of decision.

The first row that matches decides, so the order is the policy:

    request too large for a rate  ->  quota  ->  rate  ->  bytes  ->  image  ->  document  ->  strings
    ->  output budget  ->  prompt overflow  ->  codes  ->  malformed history  ->  auth  ->  ambiguous

A rate or quota wording vetoes every size wording behind it: "too many tokens per day" is no overflow. Only a request
that is larger than the whole rate stands before them, because waiting never helps it.

A pattern is a regular expression, without regard to case, searched in text whose white space is single spaces. Gaps are
bounded (`.{0,60}`), so that no text makes a search slow. `source` names where the wording was seen: a public report
(owner/name#number), a public client that matches it, or the server's own documentation.
"""

from __future__ import annotations

from foldline.failures.part_table import DOCUMENT, IMAGE, MALFORMED, STRINGS
from foldline.failures.wordings import Kind, Row

__all__ = ["ROWS", "Kind", "Row"]

# One row reads as one entry: what it is, where it was seen, the wording.
# fmt: off
_TOO_LARGE_FOR_RATE = (
    Row("rate.request_too_large", "request_too_large_for_rate", "openai, groq",
        "Aider-AI/aider#1880; continuedev/continue#10218; waiting never helps",
        r"request too large for .{0,240}?(?:tokens|input) per (?:min|hour|day)"),
)

_QUOTA = (
    Row("quota.per_day", "quota", "any", "anomalyco/opencode#13015: quota text read as overflow",
        r"\bper ?(?:day|week|month)\b|\w{3}perday|\b[TR]PD\b|\b(?:daily|weekly|monthly) (?:\w{1,20} )?(?:limit|quota|"
        r"usage|allowance)"),
    Row("rate.per_minute_quota", "rate", "gemini, vertex", "google-gemini/gemini-cli#14811: says quota, means a rate",
        r"\w{3}perminute|resource (?:has been )?exhausted\b"),
    Row("quota.code", "quota", "openai, moonshot, litellm", "OpenAI error codes guide; Moonshot API errors",
        r"insufficient_quota|billing_(?:hard_limit_reached|not_active|error)|exceeded_current_quota_error|"
        r"insufficient_(?:balance|credits|funds)|payment_required|budgetexceedederror|usage_limit_reached",
        where="code"),
    Row("quota.exceeded", "quota", "openai, azure, gemini", "google-gemini/gemini-cli#8414",
        r"exceed(?:ed|s)? (?:your|the|its) .{0,60}?quota\b|quota (?:is |has been |was )?(?:exceeded|exhausted)|"
        r"call volume quota|usage limit (?:is |has been )?(?:reached|exceeded)|"
        r"exceeded (?:the|your) [^.]{0,30}usage limit"),
    Row("quota.money", "quota", "anthropic, openrouter, deepseek", "can1357/oh-my-pi#9569; anomalyco/opencode#12219",
        r"credit balance is too low|insufficient (?:credits?|balance|funds|quota)|requires more credits|"
        r"can only afford|payment required|budget (?:has been |was )?exceeded|"
        r"prompt tokens limit exceeded: .{0,60}credits|余额不足"),
    Row("quota.extra_usage", "quota", "anthropic",
        "anthropics/claude-code#42616: seen on a request of 23k tokens, so not about its size",
        r"extra usage is required"),
)

_RATE = (
    Row("rate.words", "rate", "any",
        "strands and pi check throttling before overflow; bedrock: too many tokens, please wait",
        r"\brate[ _-]?limit|too many (?:concurrent )?requests|\bthrottl|\bper[ -](?:min(?:ute)?|second|hour)\b|"
        r"\b[TR]PM\b|please wait before|(?:try|retry) again in \d|retry[- ]after\b|\boverloaded\b|(?:at|"
        r"over) capacity|engine is currently busy|请求过于频繁|速率限制"),
    Row("rate.code", "rate", "any", "OpenAI error codes guide; Anthropic API errors; AWS common errors",
        r"rate_?limit_?(?:exceeded|error|reached)(?:_error)?|throttling(?:exception|_?error)?|"
        r"too_?many_?requests(?:_?(?:error|exception))?|resource_?exhausted|overloaded_?error|"
        r"engine_overloaded_error|429", where="code"),
    Row("server.unavailable", "other", "bedrock", "pi lists it among what is no overflow",
        r"^(?:error code: )?(?:503 )?service (?:is )?(?:temporarily )?unavailable"),
)

_BYTES = (
    Row("bytes.body", "bytes_overflow", "nginx, vertex, axum, moonshot",
        "litellm vertex branch; HTTP status 413 phrases (RFC 9110, 15.5.14); MoonshotAI/kimi-code#1862",
        r"(?:request (?:entity|body|payload)|payload|entity|content) (?:is )?too large(?!.{0,60}?\btokens)|"
        r"(?:payload|request|body|content|messages?) (?:size|length)(?: \(?[\d,_ ]{1,16}(?: bytes)?\)?)? "
        r"(?:exceeds|is larger)(?!.{0,60}?(?:context|token|n_ctx))|failed to buffer the request body"),
    Row("bytes.anthropic", "bytes_overflow", "anthropic", "Anthropic API errors: 413 request_too_large, 32 MB",
        r"(?:request|body) exceeds the (?:maximum|allowed|limit)(?: allowed)? ?(?:size|number of bytes)|"
        r"exceeds? the maximum (?:allowed )?(?:request|payload|body|message) size|maximum (?:request|payload|"
        r"body) size"),
    Row("bytes.bedrock", "bytes_overflow", "bedrock", "strands bedrock",
        r"too many total text bytes"),
    Row("bytes.request_too_large", "bytes_overflow", "any", "RFC 9110, 15.5.14",
        r"request too large", statuses=(413,)),
)

_OUTPUT = (
    Row("output.anthropic_sum", "output_overflow", "anthropic, bedrock", "continuedev/continue#6080; strands bedrock",
        r"input length and `?max_tokens`? exceed"),
    Row("output.anthropic_cap", "output_overflow", "anthropic", "anthropics/claude-code#24451",
        r"max_(?:completion_|output_)?tokens: [\d,_ ]{1,16} > [\d,_ ]{1,16}, which is the maximum allowed "
        r"number of output"),
    Row("output.too_large", "output_overflow", "openai, vllm",
        "ChatGPTNextWeb/NextChat#3195; claude-code-best/claude-code#272",
        r"max_(?:completion_|output_|new_)?tokens\W? (?:or \W?max_completion_tokens\W? )?is too large"),
    Row("output.openrouter_split", "output_overflow", "openrouter", "OpenHands/OpenHands#9937",
        r"of text input, .{0,60}?in the output"),
    Row("output.range", "output_overflow", "deepseek, dashscope", "deepseek-ai/DeepSeek-V3#69",
        r"range of max_(?:completion_|output_)?tokens (?:should be|is) \["),
    Row("output.gemini", "output_overflow", "vertex", "stackblitz-labs/bolt.diy#955; BerriAI/litellm#10548",
        r"maxOutputTokens value of"),
    Row("output.bedrock", "output_overflow", "bedrock", "RooCodeInc/Roo-Code#248; sigoden/aichat#813",
        r"maximum tokens you requested exceeds? the model limit"),
    Row("output.groq", "output_overflow", "groq", "RooCodeInc/Roo-Code#5136; skapadia3214/groq-moa#8",
        r"max_(?:completion_)?tokens\W?(?: for \S{1,80})? must be less than or equal to"),
    Row("output.above_maximum", "output_overflow", "volcengine, openai", "langgenius/dify#14376",
        r"max_(?:completion_|output_)?tokens\W.{0,60}?integer above maximum value"),
    Row("output.generic", "output_overflow", "any", "the same words in another order",
        r"max_(?:completion_|output_|new_)?tokens\W? .{0,40}?(?:exceeds?|greater than|"
        r"larger than) .{0,40}?(?:maximum|limit|context)"),
)

_PROMPT = (
    Row("prompt.vllm_negative", "prompt_overflow", "vllm, nim",
        "vllm-project/vllm#4667; Alishahryar1/free-claude-code#1198: the room left for output is negative",
        r"max_tokens must be at least ?1, got -"),
    Row("prompt.maximum_context", "prompt_overflow", "openai, azure, openrouter, deepseek, vllm, bedrock",
        "BerriAI/litellm#15968; OpenHands/OpenHands#8149; QwenLM/Qwen-Agent#759",
        r"maximum context (?:length|size|window)(?: of this model| for this model)? (?:is|of)\b"),
    Row("prompt.legacy_split", "prompt_overflow", "openai", "evalstate/fast-agent#621; run-llama/llama_index#948",
        r"requested [\d,_ ]{1,16} tokens.{0,8}? in (?:the messages|your prompt)"),
    Row("prompt.configured_limit", "prompt_overflow", "openai, azure, bedrock",
        "BerriAI/litellm#15968; pydantic-ai bedrock",
        r"input tokens exceed"),
    Row("prompt.reduce_length", "prompt_overflow", "openai, groq",
        "OpenHands/OpenHands#1902; stackblitz-labs/bolt.diy#564",
        r"reduce the length of the messages"),
    Row("prompt.vllm_total", "prompt_overflow", "vllm", "AIDotNet/OpenCowork#82; vllm-project/vllm#36197",
        r"prompt contains (?:at least )?[\d,_ ]{1,16} input tokens"),
    Row("prompt.gemini", "prompt_overflow", "gemini, vertex", "google-gemini/gemini-cli#4692; pydantic-ai google",
        r"number of tokens allowed"),
    Row("prompt.tgi_sum", "prompt_overflow", "together, sagemaker, tgi", "litellm together and sagemaker branches",
        r"inputs`? tokens \+ `?max_new_tokens`? must be <="),
    Row("prompt.tgi_inputs", "prompt_overflow", "tgi", "text-generation-inference validation",
        r"inputs`? must have less than"),
    Row("prompt.requested_count", "prompt_overflow", "sglang, llama-cpp-python",
        "abetlen/llama-cpp-python#416; litellm known substrings",
        r"requested (?:token count|tokens?(?: \([\d,_ ]{1,16}\))?|input length(?: [\d,_ ]{1,16})?) exceeds?"),
    Row("prompt.mistral", "prompt_overflow", "mistral", "pydantic-ai models/mistral.py; strands mistral",
        r"too large for model\b"),
    Row("prompt.configured_context", "prompt_overflow", "ds4, rkllama", "antirez/ds4#150; jaylfc/taOS#1738",
        r"context (?:size|window|length) is [\d,_ ]{1,16} tokens|configured context size is"),
    Row("prompt.dashscope", "prompt_overflow", "dashscope", "QwenLM/qwen-code#98; anomalyco/opencode#45834",
        r"range of input length (?:should be|is)"),
    Row("prompt.moonshot", "prompt_overflow", "moonshot", "pi overflow list",
        r"exceeded model token limit"),
    Row("prompt.xai", "prompt_overflow", "xai", "pi overflow list",
        r"maximum (?:prompt|input) length is [\d,_ ]{1,16} but"),
    Row("prompt.cohere", "prompt_overflow", "cohere",
        "pydantic-ai models/cohere.py; cohere-ai/sandbox-topically#4; openclaw/openclaw#58839",
        r"too many tokens: (?:size limit|total number of tokens)|total tokens (?:of [^.]{0,40} )?exceeds? "),
    Row("prompt.max_seq_len", "prompt_overflow", "siliconflow", "BerriAI/litellm#10188; continuedev/continue#10993",
        r"must be less than (?:or equal to )?max_seq_len"),
    Row("prompt.max_input", "prompt_overflow", "bedrock", "openclaw/openclaw#58839",
        r"exceeds? the max(?:imum)? input tokens? limit|maximum number of input tokens"),
    Row("prompt.cerebras", "prompt_overflow", "cerebras", "litellm cerebras branch",
        r"current length is [\d,_ ]{1,16} while limit is"),
    Row("prompt.copilot", "prompt_overflow", "github-copilot", "pi overflow list",
        r"prompt token count of [\d,_ ]{1,16} exceeds"),
    Row("prompt.aistudio", "prompt_overflow", "aistudio proxy, lmstudio",
        "iBUHub/AIStudioToAPI#268; anomalyco/opencode#11141",
        r"cannot truncate (?:to [\d,_ ]{1,16}, required|prompt with n_keep)"),
    Row("prompt.lmstudio_keep", "prompt_overflow", "lmstudio", "lmstudio-ai/lmstudio-bug-tracker#237 and #546",
        r"tokens to keep from the initial prompt|trying to keep the first"),
    Row("prompt.mid_generation", "prompt_overflow", "lmstudio, llama.cpp",
        "lmstudio-ai/lmstudio-bug-tracker#1251; llama-server (500): room ran out while it wrote",
        r"reached context length|context size has been exceeded"),
    Row("prompt.litellm", "prompt_overflow", "litellm", "langchain-ai/langchain#39300",
        r"ContextWindowExceededError|ContextOverflowError"),
    Row("prompt.too_many", "prompt_overflow", "bedrock, ai21", "litellm bedrock and ai21 branches",
        r"too many input tokens|prompt has too many tokens"),
    Row("prompt.characters", "prompt_overflow", "bedrock, anthropic",
        "litellm bedrock and anthropic branches; counts characters",
        r"expected maxLength: ?\d|expected maxLength:|prompt: length\b"),
    Row("prompt.more_than_allowed", "prompt_overflow", "any gateway", "opencode provider error tests",
        r"more than max(?:imum)? tokens allowed"),
    Row("prompt.too_long", "prompt_overflow", "anthropic, bedrock, zhipu, ollama, perplexity, replicate",
        "langchain-anthropic; BerriAI/litellm#21647; vllm-project/vllm#10440",
        r"\b(?:prompt|inputs?|messages?|conversation|context|request)(?: (?:text|length|content|"
        r"tokens?))?(?: \([^)]{0,40}\))? (?:is |are )?too long|is too long and exceeds limit"),
    Row("prompt.exceeds_context", "prompt_overflow", "vllm, sglang, together, ollama, llama.cpp, openrouter",
        "BerriAI/litellm#10793; earendil-works/pi#5677; ollama/ollama#17889",
        r"(?:exceed\w{0,4}|(?:longer|larger|greater|bigger) than|overflow\w{0,4}) .{0,60}?(?:context[ _](?:length|"
        r"window|size|limit)|n_ctx\b|max_model_len|model(?:'s)? maximum|maximum model length|(?:maximum|"
        r"allowed) (?:allowed )?(?:input|prompt|sequence) length)"),
    Row("prompt.context_exceeded", "prompt_overflow", "minimax, any", "pi overflow list",
        r"context[ _](?:length|window|size|limit)(?: \w{1,20}){0,2}[ _](?:exceed|overflow)\w{0,4}"),
    Row("prompt.length_limit", "prompt_overflow", "huggingface", "litellm huggingface branch",
        r"length limit exceeded"),
    Row("prompt.chinese", "prompt_overflow", "glm and qwen gateways", "ctxnorm markers",
        r"超长|超[过出].{0,8}?最大.{0,8}?(?:长度|限制)|上下文.{0,12}?(?:超[过出限]|过长)"),
    Row("prompt.code", "prompt_overflow", "openai, llama.cpp, github-copilot, mistral, zhipu",
        "ggml-org/llama.cpp#15780; pydantic-ai models/mistral.py; litellm bigmodel",
        r"(?!\w{0,40}(?:rate|quota|file|image|media|output|audio|tool|time|day|month))"
        r"\w{0,40}(?:context|prompt|input)\w{0,40}(?:exceed|overflow|too_?long|too_?large)\w{0,20}|"
        r"context_?(?:length|window|size|limit)_?(?:error|exception)|"
        r"exceed\w{0,4}_?context\w{0,30}|model_max_prompt_tokens_exceeded|3051|1261",
        where="code"),
    Row("bytes.code", "bytes_overflow", "anthropic, openai", "Anthropic API errors",
        r"request_?too_?large(?:_?error)?|string_above_max_length|payload_too_large|request_entity_too_large",
        where="code"),
)

_AUTH = (
    Row("auth.words", "auth", "any", "OpenAI error codes guide; google: API key not valid (status 400)",
        r"(?:incorrect|invalid|missing|expired|no|wrong) (?:x-)?api[ _-]?key|api key (?:is )?(?:not valid|invalid|"
        r"missing|expired|not found|required)|\bunauthori[sz]ed\b|authentication (?:failed|error|required)|"
        r"invalid (?:bearer|access|auth(?:entication)?) (?:token|credentials?)|permission denied|"
        r"no auth credentials found|鉴权失败|认证失败"),
    Row("auth.code", "auth", "any", "Anthropic API errors; AWS common errors",
        r"invalid_api_key|authentication_?error|permission_?(?:denied_?)?error|permission_denied|unauthenticated|"
        r"unauthorized|accessdeniedexception|unrecognizedclientexception|expiredtokenexception", where="code"),
)

# Words that fit an overflow and something else just as well: believed only when our own estimate is near the window.
_AMBIGUOUS = (
    Row("ambiguous.batch", "ambiguous", "llama.cpp", "llama-server: the batch is too small, not the window",
        r"increase the physical batch size|input is too large to process"),
    Row("ambiguous.token_limit", "ambiguous", "any gateway", "pi generic fallback",
        r"token limit (?:was |is |has been )?exceeded|exceed(?:s|ed)? (?:the |"
        r"your )?(?:max(?:imum)? )?tokens? limit|too many tokens"),
    Row("ambiguous.too_large", "ambiguous", "any gateway", "does not say tokens or bytes",
        r"\b(?:prompt|request|input|message)s? (?:is |are )?too (?:large|big)\b"),
    Row("ambiguous.says_nothing", "ambiguous", "any",
        "earendil-works/pi#4940: an empty 400 on a request of 200 tokens",
        r"^(?:error code: )?(?:4\d\d )?(?:status code )?\(no body\)$|^(?:error code: )?(?:400 )?(?:bad request|"
        r"invalid request|invalid_request_error|provider returned error|upstream error|unknown error|error)\W{0,3}$|"
        r"^client error '4(?:00|13|22)\b", statuses=(0, 200, 400, 413, 422)),
)
# fmt: on

ROWS: tuple[Row, ...] = (
    *_TOO_LARGE_FOR_RATE,
    *_QUOTA,
    *_RATE,
    *_BYTES,
    *IMAGE,
    *DOCUMENT,
    *STRINGS,
    *_OUTPUT,
    *_PROMPT,
    *MALFORMED,
    *_AUTH,
    *_AMBIGUOUS,
)
