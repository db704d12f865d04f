"""The proxy: any client of OpenAI's or Anthropic's APIs stays inside its window, unchanged."""
