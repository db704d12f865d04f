"""What the proxy adds to a request, measured beside a direct call and LiteLLM's proxy."""
