"""The converter's web app: an HTTP API for uploads, jobs and results, and the queue page that uses it.

```text
site ── caller ──▶ callers, sessions       a session cookie, or an API key of Holdfast
  └─── routes ───▶ uploads ── form ─▶ a source on disk, then a job
                   actions                 retry and cancel
                   views                   jobs as JSON
```
"""
