"""`python -m systems.converter.web`: serve the API and the queue page of the converter."""

from __future__ import annotations

import sys
from typing import Any

from systems.common.serving import serve_site


def _make() -> Any:
    from systems.converter.app import converter
    from systems.converter.web.site import make_site

    return make_site(converter)


if __name__ == "__main__":
    sys.exit(serve_site("python -m systems.converter.web", __doc__, _make))
