"""The books: the system's own tables on attempts, manual retries, promises and breaches.

They are in the database of the jobs, and are filled from the engine's events, in order. Each transaction also
stores the position in the events, so the next run continues one that was killed. The books are a few seconds
behind, and no picture waits for them.
"""

from systems.screenshots.records.books import Books, open_books
from systems.screenshots.records.tables import TABLES

__all__ = ["TABLES", "Books", "open_books"]
