"""`python -m systems.screenshots.web`: serve the API of the screenshots, configured from the environment."""

from __future__ import annotations

import sys
from typing import Any

from systems.common.serving import serve_site


def _make() -> Any:
    from systems.screenshots.app import screenshots
    from systems.screenshots.web.site import make_site

    return make_site(screenshots)


if __name__ == "__main__":
    sys.exit(serve_site("python -m systems.screenshots.web", __doc__, _make))
