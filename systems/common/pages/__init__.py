"""What the web pages of the systems share: their files and headers, signing in with a key, and news of changed jobs.

```text
files    the page, its style and its script; the policy that keeps other scripts out
sign_in  a key in a cookie that scripts cannot read
changes  server-sent events: "something of yours has changed, read again"
```
"""
