"""The overhead of the proxy, measured beside a direct call and LiteLLM's proxy."""
