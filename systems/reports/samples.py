"""Sample documents for the demo, the tutorial and the tests."""

from __future__ import annotations


def invoice(number: int = 1, *, seller: str = "Acme Tools Ltd", total: str = "1,234.50") -> str:
    """Return the text of an invoice, as a person would write it."""
    return f"""{seller}
1 Foundry Lane, Sheffield

Invoice no: A-{number:05}
Issued: 3 May 2026
Seller: {seller}
Buyer: Brook & Sons
Currency: EUR

Description            Quantity    Price
Steel bolts, M8        200         0.35
Angle brackets         40          4.10
Delivery               1           25.00

Total: {total}
"""


SAMPLES = {f"invoice-{number}.txt": invoice(number) for number in (1, 2, 3)} | {
    "letter.txt": "Dear Sir or Madam,\n\nthank you for your visit. We hope to see you again.\n\nYours, A. Brook\n"
}
