"""The gateway: an HTTP service of its own that turns a PDF into XML, each file in a child process under limits.

```text
service ── a request each ──▶ pool ── a socket each ──▶ nursery ── fork ──▶ child: one file, then gone
```

The service knows HTTP, the pool knows who is free. A nursery has loaded the parsers, and forks a child for each file:
what a hostile file does to a child ends with that child, and none pays for loading the parsers again.
Uploads and results lie in files without a name, handed on as descriptors: none is left behind when a process is killed.
"""
