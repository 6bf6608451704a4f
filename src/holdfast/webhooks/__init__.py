"""Webhooks: signed messages about events, sent to subscribed URLs by internal jobs."""
