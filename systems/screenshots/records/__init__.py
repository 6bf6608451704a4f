"""What is known of pictures beside their jobs, in the same database: attempts, retries by people, promises and their breaches.

The engine's events are read in their order and written down here with a mark of how far, in one transaction: killed at any point,
the next look goes on where it was. So these books are a few seconds behind, and no picture waits for them.
"""

from systems.screenshots.records.following import Books, open_books
from systems.screenshots.records.tables import TABLES

__all__ = ["TABLES", "Books", "open_books"]
