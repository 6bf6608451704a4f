"""The gateway: a separate HTTP service that turns a PDF into XML, each file in a child process under limits.

```text
service ── requests ──▶ pool ── one socket each ──▶ fork servers ── fork ──▶ child: converts one file, then exits
```

The service speaks HTTP and the pool knows which fork server is free. A fork server has loaded the parsers and
forks a child for each file. A hostile file can harm only its child, and no child has to load the parsers
again. Uploads and results are unnamed files passed on as descriptors, so a killed process leaves none behind.
"""
