"""A client for models behind any server with the chat-completions protocol: calls, responses and errors."""
