"""The converter's front door: an HTTP API for uploads, jobs and results, and the queue page that uses it.

```text
site ── who asks ──▶ callers, sessions        a cookie of ours, or a key of Holdfast
  └─── routes ─────▶ uploading ── form ─▶ a source on disk, then a job
                     looking, showing         rows as people see them
```
"""
