"""SQL as text: one statement per file, named after its verb, the same names in both dialects."""

from __future__ import annotations

from importlib.resources import files


def load_sql(package: str) -> dict[str, str]:
    """`SQL["claim"]` is the text of `claim.sql`."""
    folder = files(package) / "sql"
    return {
        f.name.removesuffix(".sql"): f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".sql")
    }
