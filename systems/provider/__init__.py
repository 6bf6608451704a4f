"""A stand-in for a model provider: it speaks the chat-completions protocol and answers by rules.

It fails on demand, by its fault switch.

```text
faults ── may break ──▶ service ── one route each ──▶ chat (answers from extraction or rubric), transcription
```

The same request always gets the same response. Each kind of response is a module with its own routes.
"""
