"""``python -m nfagent``."""

from nfagent.cli import main

main()
