"""The dialects of OpenFlow's versions: a file each for what is sent, and for what comes back.

Written from the specifications, deliberately without oneswitchd's translators.
"""

from tests.oracle.dialects.openflow10 import OpenFlow10
from tests.oracle.dialects.openflow13 import OpenFlow13
from tests.oracle.dialects.openflow14 import OpenFlow14
from tests.oracle.dialects.openflow15 import OpenFlow15

_EVERY = OpenFlow10(), OpenFlow13(), OpenFlow14(), OpenFlow15()
DIALECTS: dict[int, OpenFlow13] = {each.version: each for each in _EVERY}
"""By the version on the wire."""
VERSIONS = tuple(DIALECTS)
