"""The model behind any server that speaks the chat-completions protocol: calling it, reading it, and naming its errors."""
