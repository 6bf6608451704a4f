"""A stand-in for a model provider: speaks the chat-completions protocol, answers by rules, and fails when it is told to.

```text
faults ── may break ──▶ service ── a kind of answer each ──▶ chat: what extraction finds in the document
```

The same request always gets the same answer. A further kind of answer is a module of its own with its routes.
"""
