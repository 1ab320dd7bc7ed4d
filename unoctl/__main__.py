"""``python -m unoctl``."""

from unoctl.cli import main

main()
