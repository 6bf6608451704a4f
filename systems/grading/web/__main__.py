"""`python -m systems.grading.web`: serve the API of grading."""

from __future__ import annotations

import sys
from typing import Any

from systems.common.serving import serve_site
from systems.grading.logs import silence_drivers


def _make() -> Any:
    from systems.grading.app import grading
    from systems.grading.web.site import make_site

    silence_drivers()
    return make_site(grading)


if __name__ == "__main__":
    sys.exit(serve_site("python -m systems.grading.web", __doc__, _make))
